"""Readers of conversations and recorded runs, one module each: what benchmarks measure and training learns from."""
