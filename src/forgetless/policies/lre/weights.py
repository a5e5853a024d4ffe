"""Weights of a scorer as a JSON file of at most 2 KB: read and written here, and refused when they do not match."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Self

from forgetless.errors import ConfigError
from forgetless.policies.lre.carried import CARRIED
from forgetless.policies.lre.features import FEATURES, VERSION
from forgetless.sealed import checksum, read, unseal

__all__ = ["FORMAT", "Weight", "Weights"]

FORMAT = "forgetless-lre"


@dataclass(frozen=True, slots=True)
class Weight:
    """What one feature adds: coefficient x (value - mean) / scale."""

    mean: float
    scale: float
    coefficient: float


@dataclass(frozen=True)
class Weights:
    """A logistic regression over standardised features.

    Attributes:
        features: name -> its weight; names are all of `FEATURES`, for units, or all of `CARRIED`, for identifiers.
        bias: the log odds where every feature has its mean.
        label: the rule that the training labels came from.
        training: what it was fitted to: data, conversations, units, positive units, AUC.
    """

    features: Mapping[str, Weight]
    bias: float
    label: str
    training: Mapping[str, Any]

    policy: ClassVar[str] = "lre"
    format: ClassVar[str] = FORMAT
    revision: ClassVar[int] = VERSION
    known: ClassVar[tuple[str, ...]] = (*FEATURES, *CARRIED)

    def __post_init__(self) -> None:
        if self.carried and not self.features.keys() <= set(CARRIED):
            raise ValueError("it has features of units and of identifiers")

    @property
    def carried(self) -> bool:
        """Whether they are for identifiers."""
        return not self.features.keys().isdisjoint(CARRIED)

    @property
    def version(self) -> str:
        """Names these weights: the checksum of all that is in them."""
        return checksum(self._content())

    def dump(self) -> str:
        """The file's text; the same weights give the same bytes."""
        content = self._content()
        return json.dumps({**content, "checksum": checksum(content)}, separators=(",", ":")) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file.

        Raises:
            ConfigError: it can't be read, was altered, or does not match the features of this version.
        """
        return cls.loads(read(path), f"the weights {str(path)!r}")

    @classmethod
    def loads(cls, text: str, named: str = "the weights") -> Self:
        """Read what `dump` wrote; errors call it `named`.

        Raises:
            ConfigError: it was altered, or does not match the features of this version.
        """
        again = f"train new ones with `forgetless train {cls.policy}`, or take those that this version ships"
        content = unseal(text, named, of=f"policy {cls.policy!r}", form=cls.format, revision=cls.revision, again=again)
        try:
            return cls(*_checked(content, cls.known))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{named}: {type(error).__name__}: {error}: {again}") from None

    def words(self) -> list[str]:
        """The weights in words, what counts most first: the change of the odds for one deviation more."""
        ordered = sorted(self.features.items(), key=lambda item: -abs(item[1].coefficient))
        return [f"{name} {'+' if w.coefficient > 0 else '-'}{abs(w.coefficient):.2f}" for name, w in ordered]

    def _content(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "features_version": self.revision,
            "label": self.label,
            "training": dict(self.training),
            "bias": self.bias,
            "features": {name: [w.mean, w.scale, w.coefficient] for name, w in self.features.items()},
        }


def _checked(content: Mapping[str, Any], known: Sequence[str]) -> tuple[dict[str, Weight], float, str, dict[str, Any]]:
    features = {name: Weight(*map(float, numbers)) for name, numbers in content["features"].items()}
    unknown = [name for name in features if name not in known]
    if unknown or not features:
        raise ValueError(f"no such feature {', '.join(map(repr, unknown))}" if unknown else "it has no feature")
    bias = float(content["bias"])
    numbers = [bias, *(n for w in features.values() for n in (w.mean, w.scale, w.coefficient))]
    if not all(map(isfinite, numbers)) or any(w.scale <= 0 for w in features.values()):
        raise ValueError("a number in it is not finite, or a scale is not above 0")
    return features, bias, str(content["label"]), dict(content["training"])
