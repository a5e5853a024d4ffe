"""How a model is asked for its memory and its action, and how the memory comes in its reply (CCM, appendix E.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from forgetless.policies.ccm.blocks import Taker
from forgetless.policies.ccm.field import Field
from forgetless.policies.ccm.stream import Stream

__all__ = ["TEMPLATES", "Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """A form of replies.

    Attributes:
        task: which user message sets the task: the `newest` where observations are results of tools, the `first` where
            they are user messages themselves.
        ask: what the model is told; `{limit}` is filled in.
        ask_edit: what is added where edits are allowed.
        shown: how the memory stands in a prompt.
        taker: takes it out of a reply's text.
    """

    task: Literal["newest", "first"]
    ask: str
    ask_edit: str
    shown: str
    taker: Callable[[], Taker]


_ABOUT = (
    "# Your memory\n"
    "You do not see the history of this work: each time you get the task, the memory that you wrote last, and what has "
    "happened since. Keep in your memory all that you will need: what the user wants, what was done and found out, "
    "exact values (names, paths, ids, numbers, codes), what failed, and what is to be done next. "
)
_REPLACED = "It takes the place of the memory before it, so what you leave out is lost. At most {limit} tokens."
_LINES = (
    "A line with - takes away the line of your memory that begins so; a line with + is added in its place, or else at "
    "the end."
)
_TAGGED = "Begin every reply with one memory block:\n\n<memory>\n...\n</memory>\n\n" + _REPLACED + " After it, "
_TAGGED_EDIT = (
    "\nWhere only a few lines change, write this in place of the block:\n\n<memory_edit>\n- the first words of a line\n"
    "+ a new line\n</memory_edit>\n\n" + _LINES
)
_SHOWN = "The memory that you wrote last:\n\n<memory>\n{memory}\n</memory>"

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "chat": Template(
            "newest",
            _ABOUT + _TAGGED + "call the tools that you need next, or answer. The user does not see the block.",
            _TAGGED_EDIT,
            _SHOWN,
            Stream,
        ),
        "tags": Template(
            "first",
            _ABOUT + _TAGGED + "give one action in the form that the task asks for.",
            _TAGGED_EDIT,
            _SHOWN,
            Stream,
        ),
        "terminal": Template(
            "first",
            _ABOUT
            + "Write it into a string field `context_window`, the first of your reply's JSON object. "
            + _REPLACED,
            "\nWhere only a few lines change, write a string field `context_window_edit` instead, with lines such as\n"
            "- the first words of a line\n+ a new line\n" + _LINES,
            "The `context_window` that you wrote last:\n\n{memory}",
            Field,
        ),
    }
)
