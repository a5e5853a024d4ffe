"""Random conversations written down in the wire formats of providers, one module each."""
