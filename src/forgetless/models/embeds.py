"""Vectors in a message: vLLM's content part `prompt_embeds`, written and read.

The part holds a tensor of [rows, width] as `torch.save` writes it, in base64; a server puts the rows where the text of
the message would stand. It is read as vLLM reads it: no code in it is run, and what is no such tensor is refused.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from io import BytesIO
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import MissingExtra, RequestError

__all__ = ["TYPE", "part", "vectors"]

TYPE = "prompt_embeds"
"""The part's `type`."""


def part(array: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Vectors as a content part.

    Args:
        array: [rows, width], any floating type.

    Raises:
        MissingExtra: torch is not installed.
    """
    torch = _torch()
    buffer = BytesIO()
    torch.save(torch.from_numpy(np.array(array)), buffer)  # a copy: a view would bring all that it is a view of
    return {"type": TYPE, "data": b64encode(buffer.getvalue()).decode("ascii")}


def vectors(part: Mapping[str, Any], width: int | None = None) -> NDArray[np.float32]:
    """The vectors in a content part: [rows, width].

    Args:
        part: as `part` makes it, or another client of vLLM.
        width: that of the model which is to read them.

    Raises:
        RequestError: the part holds something else.
        MissingExtra: torch is not installed.
    """
    torch = _torch()
    data = part.get("data")
    try:
        raw = b64decode(data if isinstance(data, str) else "", validate=True)
        found = torch.load(BytesIO(raw), weights_only=True, map_location="cpu")
    except (ValueError, RuntimeError, EOFError, LookupError, OSError, TypeError, UnpicklingError):
        raise RequestError(f"the 'data' of a {TYPE!r} part must be a tensor, from torch.save, in base64") from None
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        kind = found.dtype if isinstance(found, torch.Tensor) else type(found).__name__
        raise RequestError(f"a {TYPE!r} part must hold a tensor of floating-point numbers, not {str(kind)!r}")
    if found.dim() != 2 or not len(found) or found.shape[1] != (width or found.shape[1]):
        wanted = f"[rows, {width or 'width'}]"
        raise RequestError(f"a {TYPE!r} part must hold a tensor of {wanted}, not one of {list(found.shape)!r}")
    held: NDArray[np.float32] = found.to_dense().float().numpy()
    return held


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("local", "torch") from None
    return torch
