"""Doors into other people's frameworks; each needs an extra of its own."""
