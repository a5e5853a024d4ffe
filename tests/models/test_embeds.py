"""Vectors as content parts: what goes in comes out, and what is no tensor of the right shape is refused."""

from __future__ import annotations

import pickle
import sys
from base64 import b64encode
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless import MissingExtra, RequestError
from forgetless.models.embeds import part, vectors
from forgetless.registry import load_dialect
from forgetless.tokens import PER_MESSAGE, for_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def saved(value: Any) -> dict[str, Any]:
    buffer = BytesIO()
    torch.save(value, buffer)
    return {"type": "prompt_embeds", "data": b64encode(buffer.getvalue()).decode()}


def tokens(block: dict[str, Any]) -> int:
    (message,) = load_dialect("chat").parse([{"role": "assistant", "content": [block]}]).messages
    return for_model().message(message) - PER_MESSAGE


@settings(max_examples=25)
@given(rows=st.integers(1, 300), width=st.integers(1, 64), seed=st.integers(0, 9))
def test_what_goes_in_comes_out_to_the_bit_and_a_row_is_a_token(rows: int, width: int, seed: int) -> None:
    array = np.random.default_rng(seed).standard_normal((rows, width), np.float32)
    made = part(array)
    assert set(made) == {"type", "data"}
    assert np.array_equal(vectors(made, width), array)
    assert part(array) == made, "the same bytes each time"
    assert tokens(made) == rows


def test_a_view_does_not_bring_what_it_is_a_view_of() -> None:
    array = np.zeros((1_000, 64), np.float32)
    assert part(array[3:5]) == part(np.zeros((2, 64), np.float32))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_other_clients_may_use_any_floating_type(kind: str) -> None:
    block = saved(torch.full((8, 4), 0.5, dtype=getattr(torch, kind)))
    found = vectors(block, 4)
    assert (found.dtype, found.tolist()) == (np.dtype("float32"), [[0.5] * 4] * 8)
    assert tokens(block) == 8


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code was run",))


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({"type": "prompt_embeds"}, "torch.save"),
        ({"type": "prompt_embeds", "data": 5}, "torch.save"),
        ({"type": "prompt_embeds", "data": "not base64!"}, "torch.save"),
        ({"type": "prompt_embeds", "data": b64encode(b"no tensor").decode()}, "torch.save"),
        ({"type": "prompt_embeds", "data": b64encode(pickle.dumps(Evil(), 2)).decode()}, "torch.save"),
        (saved(Evil()), "torch.save"),
        (saved({"a": torch.zeros(8, 4)}), "'dict'"),
        (saved(torch.zeros(8, 4, dtype=torch.int64)), "'torch.int64'"),
        (saved(torch.zeros(4)), r"\[4\]"),
        (saved(torch.zeros(0, 4)), r"\[0, 4\]"),
        (saved(torch.zeros(1, 8, 4)), r"\[1, 8, 4\]"),
        (saved(torch.zeros(8, 5)), r"\[rows, 4\].*\[8, 5\]"),
    ],
)
def test_all_else_is_refused_and_no_code_in_it_is_run(block: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        vectors(block, 4)
    assert tokens(block) > 0, "and it is counted, whatever it is"


@settings(max_examples=25)
@given(at=st.integers(0, 2_000), byte=st.integers(0, 255), cut=st.integers(0, 2_000))
def test_a_damaged_part_is_still_counted(at: int, byte: int, cut: int) -> None:
    buffer = BytesIO()
    torch.save(torch.zeros(8, 4), buffer)
    raw = bytearray(buffer.getvalue())
    raw[at % len(raw)] = byte
    block = {"type": "prompt_embeds", "data": b64encode(bytes(raw[: len(raw) - cut % len(raw)])).decode()}
    assert tokens(block) >= 0


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"forgetless\[local\]"):
        part(np.zeros((1, 1), np.float32))
    with pytest.raises(MissingExtra, match=r"forgetless\[local\]"):
        vectors({"type": "prompt_embeds", "data": ""})
