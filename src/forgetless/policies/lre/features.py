"""Features of units without a vocabulary: what a unit looks like, and what is new in it to its conversation.

All but `position`, `recency` and `uses` are functions of a unit and of what stands before it. `position` and `recency`
also know how long the conversation is by now, and `uses` counts what later units have taken up so far. A conversation
that grows pays for its new units only: what was counted is kept under the key of its last unit (`Unit.key`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

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

PREFIXES, UNITS = 256, 200_000  # kept at most: conversations, and units in all of them


class Features:
    """Computes features, and keeps what it counted of conversations that may go on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Prefix] = OrderedDict()

    def __call__(self, units: Sequence[Unit]) -> Floats:
        """The features of a whole conversation as it stands: [units, FEATURES]."""
        return np.hstack(self.parts(units))

    def parts(self, units: Sequence[Unit]) -> tuple[Floats, Floats]:
        """The same in two: what is kept, [units, CAUSAL], and what changes as the conversation goes on, [units, 3]."""
        many = len(units)
        keyed = next((unit.index + 1 for unit in reversed(units) if unit.keys is not None), 0)
        prefix = kept = self._longest(units[:keyed])
        prefix.extend(units[prefix.many : keyed])
        if keyed < many:  # such as a question that is only tried
            prefix = deepcopy(kept)
            prefix.extend(units[keyed:])
        place = np.arange(many, dtype=np.float64)
        late = np.column_stack((place / max(1, many), 1 / (many - place), np.log1p(prefix.uses)))
        rows = prefix.rows
        if keyed:
            self._keep(units[keyed - 1].key, kept)
        return rows, late

    def _longest(self, units: Sequence[Unit]) -> Prefix:
        """Take out what is known of the longest start of a conversation: whoever extends it owns it meanwhile."""
        if self._kept:
            for unit in reversed(units):
                prefix = self._kept.pop(unit.key, None) if unit.keys is not None else None
                if prefix is not None and prefix.many == unit.index + 1:
                    return prefix
        return Prefix()

    def _keep(self, key: bytes, prefix: Prefix) -> None:
        self._kept[key] = prefix
        total = sum(kept.many for kept in list(self._kept.values()))
        while len(self._kept) > 1 and (len(self._kept) > PREFIXES or total > UNITS):
            total -= self._kept.popitem(last=False)[1].many
