"""Wire formats of providers, one module each."""
