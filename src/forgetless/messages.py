"""Messages and their parts: one conversation in one form, whatever wire format it came in.

A dialect parses wire JSON into these and emits them again. Each message and part keeps `wire`, the mapping it was
parsed from: on emission the modelled fields are laid over it, so unknown fields, key order and `null` come back
as they were. `wire` takes no part in equality: two messages are equal when a model would read the same.
Nothing here mutates `wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Call", "Media", "Message", "Opaque", "Part", "Result", "Role", "Text", "Thinking", "Wire"]

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
Wire: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """Words. `wire` is None where the wire holds a bare string in place of a list of parts."""

    text: str
    wire: Wire | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a recording or a file; `block` is the wire block, payload included."""

    kind: Literal["image", "audio", "file"]
    block: Wire


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an assistant; `arguments` is JSON text or a mapping, as the wire has it."""

    id: str
    name: str
    arguments: str | Mapping[str, Any]
    wire: Wire | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered to the call with the same `id`; `content` holds `Text`, `Media` and `Opaque` parts.

    `fixed` says that the provider takes no plain text in the place of this content, such as a screenshot.
    """

    id: str
    content: tuple[Part, ...]
    wire: Wire | None = field(default=None, compare=False, repr=False)
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of a model, whole or gone. `text` is what can be read of it; a signature stays in `wire`.

    `sealed` is the length of its encrypted payload in characters, which is paid for but cannot be read.
    """

    text: str
    wire: Wire = field(compare=False, repr=False)
    sealed: int = 0


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block that no dialect looks into: server tools, refusals, references. It stays with its message."""

    block: Wire


Part: TypeAlias = Text | Media | Call | Result | Thinking | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation.

    Attributes:
        role: `tool` where the dialect has such a role; Anthropic's tool results come in `user` messages.
        parts: in the order of the wire; calls come after the content where the wire keeps them apart.
        wire: the mapping that it was parsed from, or None for a message that we made.
    """

    role: Role
    parts: tuple[Part, ...]
    wire: Wire | None = field(default=None, compare=False, repr=False)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls in this message."""
        return tuple(p for p in self.parts if isinstance(p, Call))

    @property
    def results(self) -> tuple[Result, ...]:
        """The tool results in this message."""
        return tuple(p for p in self.parts if isinstance(p, Result))
