"""From what a user names to a model: an address, a file, or the embedded one."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from forgetless.errors import ConfigError
from forgetless.models.base import Model
from forgetless.models.latent import Latent

__all__ = ["load_latent", "load_model"]


def load_model(spec: str, model: str | None = None, api_key: str | None = None, *, threads: int | None = None) -> Model:
    """A model.

    Args:
        spec: `embedded`, the path of a `.gguf` file, the address of an OpenAI-compatible server, or `latent` with `#`
            and a folder of adapters behind it, as in `load_latent`.
        model: its name at the server; a file holds one model, which needs none.
        api_key: for the server; by default that of the environment variable `OPENAI_API_KEY`.
        threads: of a model in this process; by default half the cores, at most 4.

    Raises:
        ConfigError: `spec` is none of these, or `model` is missing or of no use.
        MissingExtra: what runs the embedded model is not installed.
        ModelError: the file can't be loaded.
    """
    if spec.startswith(("http://", "https://")):
        from forgetless.models.openai import OpenAI

        if not model:
            raise ConfigError(f"name the model to ask for at {spec!r}")
        return OpenAI(spec, model, api_key)
    if spec == "embedded" or spec.endswith(".gguf"):
        from forgetless.models.embedded import Embedded

        if model:
            raise ConfigError(f"{spec!r} is one model: leave out the name {model!r}")
        return Embedded(None if spec == "embedded" else spec, threads=threads)
    if spec.partition("#")[0] == "latent":
        return load_latent(spec.partition("#")[2])
    raise ConfigError(f"unknown model {spec!r}; {_hint(spec)}")


def load_latent(adapters: str = "") -> Latent:
    """A model in this process that writes and reads memory vectors.

    Args:
        adapters: the folder that `forgetless train rea-latent` made; empty for those that ship.

    Raises:
        ConfigError: there is no such folder.
        MissingExtra: what runs the model is not installed.
    """
    if adapters and not Path(adapters).is_dir():
        raise ConfigError(f"there is no folder {adapters!r} of adapters: make one by 'forgetless train rea-latent'")
    from forgetless.models.local import load_local

    return load_local(None, Path(adapters) if adapters else None)


def _hint(spec: str) -> str:
    if get_close_matches(spec, ["embedded"], cutoff=0.5):
        return "did you mean 'embedded'?"
    if "/" in spec or ":" in spec or "." in spec:
        return f"did you mean 'http://{spec.rpartition('://')[2]}'?"
    return "give 'embedded', the path of a .gguf file, or an http(s) address"
