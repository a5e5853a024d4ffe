"""A model run by transformers in this process, that writes and reads latent memory."""

from forgetless.models.local.load import load_local

__all__ = ["load_local"]
