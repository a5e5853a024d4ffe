"""Replies out of which the memory that a model writes for itself is taken, one module a dialect."""
