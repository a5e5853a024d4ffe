"""A run's folder that a broken run goes on from: config.json, metrics.jsonl (a line a step), and checkpoint.pt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from forgetless.errors import ConfigError

__all__ = ["fingerprint", "folder_for", "keep", "replace_text", "resume"]

CONFIG = "config.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.pt"

LOOKED_AT = 1_024
"""Values of a tensor that its fingerprint is made of."""


def folder_for(out: Path) -> Path:
    """A folder that can be written to, made if it is missing.

    Raises:
        ConfigError: it can't be.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".tried").touch()
        (out / ".tried").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{str(out)!r} can't be written to ({error.strerror}): name another folder as out") from None
    return out


def fingerprint(model: Any, skip: str | None = None) -> str:
    """What tells a model's weights from another's, and from its own after a step.

    Args:
        model: of torch.
        skip: parameters with this in their name don't count.
    """
    found = sha256()
    for name, value in model.named_parameters():
        if skip is None or skip not in name:
            few = value.detach().flatten()[:LOOKED_AT].to("cpu", torch.float32)
            found.update(f"{name} {tuple(value.shape)}".encode() + few.numpy().tobytes())
    return found.hexdigest()[:16]


def resume(
    out: Path, config: Mapping[str, Any], *, writes: bool = True
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """The checkpoint of a run with this config, and its figures up to there; None where there is none.

    What another run left there is replaced then.

    Args:
        out: the run's folder.
        config: all that its figures hang on.
        writes: whether this process writes the folder.

    Raises:
        ConfigError: the checkpoint or the figures of such a run are damaged.
    """
    now = json.loads(json.dumps(config))
    kept = out / CHECKPOINT
    if not (_read(out / CONFIG) == now and kept.exists()):
        if writes:
            kept.unlink(missing_ok=True)
            (out / "summary.json").unlink(missing_ok=True)  # of the run before: this one is not finished
            replace_text(out / METRICS, "")
            replace_text(out / CONFIG, json.dumps(now, indent=2) + "\n")
        return None
    try:
        state = torch.load(kept, weights_only=True, map_location="cpu")
        text = (out / METRICS).read_text("utf-8").split("\n")[:-1]
        lines = [json.loads(line) for line in text[: state["steps"]]]
        if len(lines) < state["steps"]:
            raise ValueError(f"{METRICS} has {len(lines)} of {state['steps']} lines")
    except (OSError, RuntimeError, ValueError, EOFError, LookupError, TypeError, UnpicklingError) as error:
        raise ConfigError(
            f"the run in {str(out)!r} is damaged and can't go on ({' '.join(str(error).split())[:120]}): delete its "
            f"{CHECKPOINT} to begin anew, or name another folder as out"
        ) from error
    if writes:
        replace_text(out / METRICS, "".join(json.dumps(line) + "\n" for line in lines))
    return state, lines


def keep(out: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint in the place of the one before, which stays until it is whole.

    Args:
        out: the run's folder.
        state: what is kept; `steps` are those that were taken.
    """
    torch.save(state, out / "checkpoint.new")
    os.replace(out / "checkpoint.new", out / CHECKPOINT)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def replace_text(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = file.with_suffix(".new")
    new.write_text(text, "utf-8")
    os.replace(new, file)
