"""Policies, one module each, loaded by name through `forgetless.registry`."""
