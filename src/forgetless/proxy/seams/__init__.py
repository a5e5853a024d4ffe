"""Replies sewn together, one module for each dialect."""
