"""Features of units without a vocabulary: what a unit looks like, and what is new in it to its conversation.

All but `position`, `recency` and `uses` are functions of a unit and of what stands before it. `position` and `recency`
also know how long the conversation is by now, and `uses` counts what later units have taken up so far. A conversation
that grows pays for its new units only: what was counted is kept under the key of its last unit (`Unit.key`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.prefix import CAUSAL, Prefix
from forgetless.units import Unit

__all__ = ["CAUSAL", "FEATURES", "VERSION", "Features"]

Floats = NDArray[np.float64]

VERSION = 1
"""Of the meaning of the features: weights that were fitted to another version are refused."""

FEATURES = (*CAUSAL, "position", "recency", "uses")
"""The columns. Counts enter as log(1 + count).

* `index`: units before it. `user`, `step`: its kind. `turn_depth`: units since the user last spoke.
* `words`: its length. `statement`: distinct words outside its questions that no more than 3 units, or 3 % of those
  before, have. `statement_excess`: that, less the running mean of units of its kind. `novel`: distinct words that no
  unit before has. `novel_excess`, `rarity_excess`: its share of novel words and the mean idf of its words, less their
  running means. `common`: the share of its words that more than a tenth of the units before have. `salience`: the sum
  of the idf of its distinct words.
* `overlap_previous`, `overlap_recent`: the share (by idf) of its words that the unit before, or one of the ten
  before, has. `answers`: whether the unit before asks something.
* `numbers` to `lines`: what its characters look like (`shapes`).
* `speaker` to `error`: words of a class (`cues`); `article`, `joint` and `past` as a share of its words; `first_person`
  is `speaker` and `own`, `time` is `deictic` and `calendar`.
* `position`: its place, from 0 to 1. `recency`: 1 / (1 + units after it). `uses`: how often later units took up a
  word that it brought in.
"""


class Features:
    """Computes features, and keeps what it counted of conversations that may go on."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self._kept = Kept(Prefix)

    def __call__(self, units: Sequence[Unit]) -> Floats:
        """The features of a whole conversation as it stands: [units, FEATURES]."""
        return np.hstack(self.parts(units))

    def parts(self, units: Sequence[Unit]) -> tuple[Floats, Floats]:
        """The same in two: what is kept, [units, CAUSAL], and what changes as the conversation goes on, [units, 3]."""
        many = len(units)
        place = np.arange(many, dtype=np.float64)

        def read(prefix: Prefix) -> tuple[Floats, Floats]:
            return prefix.rows, np.column_stack((place / max(1, many), 1 / (many - place), np.log1p(prefix.uses)))

        return self._kept(units, read)
