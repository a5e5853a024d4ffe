"""A causal language model that acts and learns: sampling, log probabilities, and the weights that it began with."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import torch

from forgetless.training.grpo import token_logps

__all__ = ["Actor", "Tokenizer", "padded"]

Tensor: TypeAlias = Any


class Tokenizer(Protocol):
    """Text to numbers and back.

    Attributes:
        end: the number that ends a reply, and fills up rows.
    """

    end: int

    def encode(self, text: str) -> list[int]:
        """The numbers of a text, with nothing before or after them."""

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers."""


class Actor:
    """A model of transformers with its tokenizer.

    With a LoRA adapter of peft, the weights that it began with are those with the adapter switched off; else they are
    a copy of the model.

    Attributes:
        model: learns.
        tokenizer: reads and writes.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        """Freeze the weights as they are now for `first`."""
        self.model, self.tokenizer = model, tokenizer
        self._adapter = hasattr(model, "disable_adapter")
        self._first = None if self._adapter else copy.deepcopy(model).requires_grad_(False).eval()

    @contextmanager
    def first(self) -> Iterator[Any]:
        """The model with the weights that it began with, without gradient."""
        with torch.no_grad():
            if self._first is not None:
                yield self._first
            else:
                with self.model.disable_adapter():
                    yield self.model

    def sample(
        self, prompts: Sequence[Sequence[int]], most: int, temperature: float, chance: torch.Generator
    ) -> tuple[list[list[int]], list[list[float]]]:
        """A reply to each prompt, and the log probability of each of its tokens at this temperature.

        Args:
            prompts: the numbers of each.
            most: tokens of a reply; one that is cut off lacks the number that ends it.
            temperature: 0 takes the likeliest token.
            chance: what is drawn comes from it.
        """
        with torch.no_grad():
            return self._sample(prompts, most, temperature, chance)

    def _sample(
        self, prompts: Sequence[Sequence[int]], most: int, temperature: float, chance: torch.Generator
    ) -> tuple[list[list[int]], list[list[float]]]:
        end = self.tokenizer.end
        width = max(map(len, prompts))
        rows = torch.tensor([[end] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        replies: list[list[int]] = [[] for _ in prompts]
        logps: list[list[float]] = [[] for _ in prompts]
        alive = torch.ones(len(prompts), dtype=torch.bool)
        cache: Any = None
        for _ in range(most):
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -rows.shape[1] :]
            out = self.model(input_ids=rows, attention_mask=mask, position_ids=places, cache=cache, use_cache=True)
            cache = out.cache
            found = torch.log_softmax(out.logits[:, -1].float() / (temperature or 1.0), -1)
            drawn = torch.multinomial(found.exp(), 1, generator=chance)[:, 0] if temperature else found.argmax(-1)
            chosen = found.gather(-1, drawn[:, None])[:, 0]
            for at in torch.nonzero(alive)[:, 0].tolist():
                replies[at].append(int(drawn[at]))
                logps[at].append(float(chosen[at]))
            alive &= drawn != end
            if not alive.any():
                break
            rows = drawn[:, None]
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        return replies, logps

    def logps(self, rows: Sequence[Sequence[int]], temperature: float, model: Any = None) -> Tensor:
        """Log probabilities [rows, longest] of each token given those before it, at this temperature."""
        tokens, mask = padded(rows, self.tokenizer.end)
        found = (self.model if model is None else model)(input_ids=tokens, attention_mask=mask, use_cache=False)
        return token_logps(found.logits, tokens, temperature or 1.0)


def padded(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Rows of one length, filled up at their ends, and the mask of what is theirs: [rows, longest]."""
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return tokens, mask
