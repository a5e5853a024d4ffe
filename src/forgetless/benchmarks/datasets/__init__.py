"""Readers of benchmark data, one module each."""
