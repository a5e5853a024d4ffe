"""Adapters on disk: two standard peft adapters, the memory's own tensors, and a description.

`compress/` and `generate/` load by plain peft, and a server that knows LoRA takes `generate/` as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from forgetless.errors import ConfigError
from forgetless.models.local.network import COMPRESS, GENERATE, Network, Shape

__all__ = ["load_adapters", "save_adapters"]

CONFIG = "config.json"
TENSORS = "memory.safetensors"
WEIGHTS = "adapter_model.safetensors"
NAMES = ("rows", "project", "count", "weigh")


def save_adapters(network: Network, folder: Path, about: Mapping[str, Any]) -> None:
    """Write what was learnt, in bfloat16.

    Args:
        network: that learnt.
        folder: to write.
        about: what else is worth knowing: the backbone's name, training data and its licences.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (COMPRESS, GENERATE):
        state = peft.get_peft_model_state_dict(network.model, adapter_name=name)
        config = network.model.peft_config[name]
        config.base_model_name_or_path = about.get("backbone")  # and no folder of this machine
        config.save_pretrained(folder / name)
        _write(state, folder / name / WEIGHTS)
    _write({name: getattr(network, name).detach() for name in NAMES}, folder / TENSORS)
    told = {**about, "shape": network.shape.json()}
    (folder / CONFIG).write_text(json.dumps(told, indent=2) + "\n", "utf-8")


def load_adapters(backbone: Any, folder: Path) -> Network:
    """The network that was saved, with its adapters on a backbone.

    Raises:
        ConfigError: the folder holds none, or they were made for a model of another width.
    """
    try:
        told = json.loads((folder / CONFIG).read_text("utf-8"))
        network = Network(backbone, Shape.read(told["shape"]))
        states = {name: load_file(folder / name / WEIGHTS) for name in (COMPRESS, GENERATE)}
        loaded = load_file(folder / TENSORS)
        own = {name: loaded[name] for name in NAMES}
        if own["rows"].shape[1] != network.width:
            raise ConfigError(
                f"{str(folder)!r} is for a model {own['rows'].shape[1]} wide, this one is {network.width}: name the "
                f"backbone that it was trained on, {told.get('backbone')!r}"
            )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{str(folder)!r} holds no adapters ({' '.join(str(error).split())[:200]}): make some with `forgetless "
            "train rea-latent`"
        ) from error
    wanted = {name: peft.get_peft_model_state_dict(network.model, adapter_name=name) for name in states}
    held = {name: getattr(network, name) for name in NAMES}
    for name, state, there in (*((name, states[name], wanted[name]) for name in states), (TENSORS, own, held)):
        if {key: value.shape for key, value in state.items()} != {key: value.shape for key, value in there.items()}:
            raise ConfigError(
                f"{name} in {str(folder)!r} does not fit: name the backbone that it was trained on, "
                f"{told.get('backbone')!r}, or train anew"
            )
    for name, state in states.items():
        peft.set_peft_model_state_dict(network.model, state, adapter_name=name)
    with torch.no_grad():
        for name in NAMES:
            held[name].copy_(own[name])
    network.eval().requires_grad_(False)
    return network


def _write(state: Mapping[str, Any], file: Path) -> None:
    half = {key: value.to(torch.bfloat16).contiguous() for key, value in state.items()}
    save_file(half, file, metadata={"format": "pt"})
