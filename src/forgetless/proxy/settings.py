"""What a proxy is told: one record, from flags or a TOML file, handed to every worker as JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from forgetless.errors import ConfigError
from forgetless.registry import LASTING, RECOGNISER, REWRITERS, load_rewriter
from forgetless.session import LOW, Session
from forgetless.tokens import Counter

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a proxy works.

    Attributes:
        upstream: base address of a provider, or `embedded`.
        policy: name of the policy.
        options: the policy's own.
        budget: most tokens of a request; by default the window of the request's model less its reply.
        low: the low water mark, as in `Session`.
        truncate: cut inside what must stay where that alone is over the budget.
        instructions: what recognises the user's standing instructions, which then stay; `none` for nothing.
        remind: say them again beside the newest question, as in `Session`.
        every_turn: choose anew for every request over the budget, as in `Session`.
        store: where conversations are kept, as in `open_store`.
        contents: keep messages, not only decisions and numbers.
        keep_days: remove conversations that were not used for so many days; 0 keeps all.
        shadow: forward everything unchanged, and record what would have been sent.
        strict: answer 400 when what must stay is over the budget, in place of sending it.
        recall: offer the model a tool that reads back what was left out.
        max_body: most bytes of a request.
        timeout: seconds without a byte from upstream before it is given up.
    """

    upstream: str
    policy: str = LASTING
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: int | None = None
    low: float = LOW
    truncate: bool = False
    instructions: str = RECOGNISER
    remind: bool | None = None
    every_turn: bool = False
    store: str | None = None
    contents: bool = True
    keep_days: float = 0
    shadow: bool = False
    strict: bool = False
    recall: bool = False
    max_body: int = 64 * 2**20
    timeout: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ConfigError: names what is wrong.
        """
        if self.budget is not None and self.budget <= 0:
            raise ConfigError(f"the budget must be above 0 tokens, not {self.budget!r}")
        if self.max_body <= 0 or self.timeout <= 0 or self.keep_days < 0:
            raise ConfigError("max_body and timeout must be above 0, and keep_days at least 0")
        if self.upstream != "embedded" and not self.upstream.startswith(("http://", "https://")):
            raise ConfigError(f"upstream must be the address of a provider or 'embedded', not {self.upstream!r}")
        if self.recall and self.upstream == "embedded":
            raise ConfigError("recall is a tool, and the embedded model calls none: leave it out")
        if self.rewrites and (self.recall or self.shadow):
            raise ConfigError(
                f"policy {self.policy!r} changes what the model is asked for, so it works neither with shadow nor with "
                "recall: leave them out"
            )
        if self.rewrites:
            load_rewriter(self.policy, **self.options)
        session = self.session()
        if self.upstream == "embedded" and session.vectors:
            raise ConfigError(
                "the embedded model reads no memory vectors: choose another 'compress', or serve a model that does"
            )

    @property
    def rewrites(self) -> bool:
        """Whether the model is to write a memory of its own."""
        return self.policy in REWRITERS

    def session(
        self,
        budget: int | None = None,
        counter: Counter | None = None,
        dialect: str = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> Session:
        """A session for a new conversation.

        Args:
            budget: most tokens of a request; by default as in `Session`.
            counter: the same.
            dialect: the same.
            options: of the policy, in place of the settings' own.

        Raises:
            ConfigError: the policy or an option of it is wrong.
        """
        return Session(
            budget=budget,
            low=self.low,
            policy=None if self.rewrites else self.policy,
            dialect=dialect,
            counter=counter,
            truncate=self.truncate and not self.rewrites,
            instructions=self.instructions,
            remind=self.remind,
            every_turn=self.every_turn,
            **({} if self.rewrites else self.options if options is None else options),
        )

    def dumps(self) -> str:
        """As JSON, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Settings:
        """What `dumps` made."""
        return cls(**json.loads(text))

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """The settings in a TOML file, by name; `options` is a table.

        Raises:
            ConfigError: the file can't be read, or has a setting that there is not, or of the wrong kind.
        """
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the settings {str(path)!r} cannot be read: {error}") from None
        found = {name.replace("-", "_"): value for name, value in found.items()}
        known = {one.name for one in fields(Settings)}
        if unknown := sorted(set(found) - known):
            raise ConfigError(f"{str(path)!r} has no setting {unknown[0]!r}; known: {', '.join(sorted(known))}")
        kinds = get_type_hints(Settings)
        for name, value in found.items():
            try:
                found[name] = msgspec.convert(value, kinds[name])
            except msgspec.ValidationError as error:
                raise ConfigError(f"{name!r} in {str(path)!r} is wrong: {error}") from None
        return found
