"""Summaries of what is left out: the policies `summary` and `acon`."""
