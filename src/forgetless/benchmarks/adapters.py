"""Which adapters a model has, for a run's config: its name is that of the backbone alone."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

__all__ = ["adapters_of"]


def adapters_of(model: object) -> dict[str, str]:
    """The hash of a local model's adapters, as an entry of a config; no entry for models without any."""
    folder = getattr(model, "folder", None)
    if not isinstance(folder, Path):
        return {}
    found = sha256()
    for file in sorted(folder.rglob("*.safetensors")):
        found.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return {"adapters": found.hexdigest()[:16]}
