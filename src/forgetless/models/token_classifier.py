"""LLMLingua-2's compressor: the probability of each word of a text that it has to stay (Pan et al., 2024).

A token classifier with two labels on the encoder of BERT or XLM-RoBERTa; a word has the mean of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from string import punctuation
from typing import NamedTuple, Protocol

import numpy as np

from forgetless.errors import ConfigError
from forgetless.models.encoder import Encoder, Piece

__all__ = ["Classifier", "TokenClassifier", "Word"]


BLANK = "\u2581"
"""What stands for a blank in the tokens of XLM-RoBERTa."""


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        start: where it begins.
        end: behind its last character.
        tokens: how many the classifier cuts it into.
        probability: that it has to stay.
    """

    start: int
    end: int
    tokens: int
    probability: float


class Classifier(Protocol):
    """Texts to the words that may go."""

    def __call__(self, texts: Sequence[str]) -> list[list[Word]]:
        """The words of each text, in order."""


class TokenClassifier:
    """A checkpoint of LLMLingua-2, run with numpy.

    Args:
        folder: holds `config.json`, `model.safetensors` and `tokenizer.json`.

    Raises:
        ConfigError: the folder holds no such checkpoint.
        MissingExtra: the library that reads the tokenizer is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._encoder = Encoder(folder)
        self._weight, self._bias = self._encoder.head("classifier")
        if len(self._bias) != 2:
            raise ConfigError(f"{str(folder)!r} has {len(self._bias)} labels; LLMLingua-2 has two")
        self._wordpiece = self._encoder.config["model_type"] == "bert"

    def __call__(self, texts: Sequence[str]) -> list[list[Word]]:
        """The words of each text, in order."""
        chunks = [(at, chunk) for at, text in enumerate(texts) for chunk in self._chunks(text)]
        found: list[list[Word]] = [[] for _ in texts]
        for (at, chunk), states in zip(chunks, self._encoder([chunk for _, chunk in chunks]), strict=True):
            drop, keep = (states[1:-1] @ self._weight.T + self._bias).T
            stays = 1 / (1 + np.exp(drop - keep))  # the softmax over two labels
            found[at] += self._words(texts[at], chunk, stays.tolist())
        return found

    def _chunks(self, text: str) -> Iterator[list[Piece]]:
        """The tokens of a text in runs that the encoder can take, cut behind a full stop where there is one."""
        pieces, most = self._encoder.pieces(text), self._encoder.window - 2
        while pieces:
            end = len(pieces)
            if end > most:
                stops = (at for at in range(most, 0, -1) if text[pieces[at - 1].start : pieces[at - 1].end] == ".")
                end = next(stops, most)
            yield pieces[:end]
            pieces = pieces[end:]

    def _words(self, text: str, pieces: Sequence[Piece], stays: Sequence[float]) -> Iterator[Word]:
        groups: list[list[int]] = []
        for at, piece in enumerate(pieces):
            if not groups or self._begins(piece):
                groups.append([])
            groups[-1].append(at)
        for group in groups:
            start, end = pieces[group[0]].start, pieces[group[-1]].end
            start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens take the blank before them
            if start < end and any(pieces[at].name != BLANK for at in group):
                yield Word(start, end, len(group), sum(stays[at] for at in group) / len(group))

    def _begins(self, piece: Piece) -> bool:
        """Whether a token begins a word, as LLMLingua-2 has it."""
        if self._wordpiece:
            return not piece.name.startswith("##")
        return piece.name.startswith(BLANK) or piece.name in punctuation
