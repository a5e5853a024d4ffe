"""Measurements of policies, run as commands that write `results/<name>/`."""
