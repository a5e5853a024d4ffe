"""From names to a local model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.embedded import NAME
from forgetless.models.local.backbone import load_backbone

if TYPE_CHECKING:
    from forgetless.models.local.local import Local

__all__ = ["load_local"]

SHIPPED = Path(__file__).with_name("smollm2")
"""The adapters of the embedded model."""


def load_local(backbone: str | None = None, adapters: Path | None = None) -> Local:
    """A model that compresses and answers.

    Args:
        backbone: a folder, or a name on the hub; None for the one that the adapters were trained on.
        adapters: a folder that `forgetless train rea-latent` wrote; None for those of the embedded model.

    Raises:
        ConfigError: there is no such model, or the adapters are not for it.
        MissingExtra: what runs the model is not installed.
    """
    if backbone is not None and adapters is None:
        raise ConfigError(f"name the adapters that were trained on {backbone!r}: none of it come along")
    found = load_backbone(backbone or _trained_on(adapters))
    try:
        import peft  # noqa: F401 - what comes next needs it
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "peft") from error
    import torch

    from forgetless.models.local.adapters import load_adapters
    from forgetless.models.local.local import Local

    folder = adapters or SHIPPED
    network = load_adapters(found.model, folder).to("cuda" if torch.cuda.is_available() else "cpu")
    return Local(found.name, network, found.tokenizer, folder)


def _trained_on(adapters: Path | None) -> str | None:
    """The backbone that adapters name; None for the embedded one, and where they name none."""
    try:
        told = json.loads(((adapters or SHIPPED) / "config.json").read_text("utf-8")).get("backbone")
    except (OSError, ValueError, AttributeError):
        return None  # which loading them says
    return told if isinstance(told, str) and told != NAME else None
