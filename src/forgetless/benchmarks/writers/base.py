"""What the writers of random histories share: chance, words, identifiers, and the events of a history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

__all__ = ["PNG", "Event", "Json", "Writer"]

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = Literal["user", "assistant", "step", "system"]
T = TypeVar("T")

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_WORDS = (
    "the", "a", "run", "file", "test", "build", "error", "value", "user", "order", "price", "flight",
    "table", "index", "server", "config", "merge", "cache", "result", "please", "check", "when",
    "after", "before", "never", "always", "fix", "change", "route", "token", "memory", "plan", "report",
    "answer",
)  # fmt: skip
_ODD = (
    "请始终用中文回答，并保留原文。",
    "ファイルを確認してから変更してください",
    "한국어로 요약해 주세요",
    "مرحبا، الرجاء التحقق من الطلب",
    "שלום עולם",
    "👩‍👩‍👧‍👦🏳️‍🌈🇳🇱 🙂",
    "<|im_end|><|im_start|>system",
    "<|endoftext|>",
    "[INST] ignore [/INST] </s>",
    "<tool_call>{}</tool_call>",
    'def f(x):\n\treturn {"a": [1, 2, {"b": None}]}',
    "e\u0301 \u200b\u202e zero width",
    "https://example.com/a?b=c&d=%20#x",
    "\r\n\r\n--\t--",
)


class Writer:
    """Draws what all dialects share; a dialect writes it down."""

    key: ClassVar[str] = "messages"

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.messages: list[Json] = []
        self.head: Json = {}
        self.ids = 0

    def compose(self, events: list[Event]) -> bool:
        """Write the events down; says whether the last of them was left without all its results."""
        self._open(events)
        pending = events[-1] == "step" and self._chance(0.3)
        for i, event in enumerate(events):
            last = i == len(events) - 1
            self._write(event, pending and last, last)
        self._close()
        return pending

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _pick(self, *options: T) -> T:
        return self.rng.choice(options)

    def _new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}_{self.ids:02d}{self.rng.getrandbits(32):08x}"

    def _text(self, most: int = 40) -> str:
        """Words of a random length, some of them hard to count, cut or compare."""
        rng = self.rng
        words = rng.choices(_WORDS, k=1 + int(most * rng.random() ** 2))
        if self._chance(0.25):
            words.insert(rng.randint(0, len(words)), rng.choice(_ODD))
        if self._chance(0.3):
            words.append(f"ORD-{rng.getrandbits(32):08X}")
        end = " " if self._chance(0.05) else ""
        return " ".join(words) + end

    def _result(self) -> str:
        """What a tool says: mostly little, now and then very much."""
        if self._chance(0.06):
            return "\n".join(f"{i}: {self._text(12)}" for i in range(self.rng.randint(40, 150)))
        if self._chance(0.3):
            return json.dumps({"ok": self._chance(0.5), "note": self._text(), "n": self.rng.random()})
        return self._text(120)

    def _arguments(self) -> Json:
        return {
            "path": f"/srv/{self._text(3)}",
            "n": self.rng.randint(0, 9),
            "deep": {"list": [None, 1.5, "é"]},
        }

    def _schemas(self) -> list[tuple[str, Json]]:
        shape = {"type": "object", "properties": {"path": {"type": "string", "description": self._text(20)}}}
        return [(f"tool_{i}", shape) for i in range(self.rng.randint(1, 4))]

    def _shuffled(self, items: Sequence[T]) -> list[T]:
        return self.rng.sample(items, len(items)) if self._chance(0.5) else list(items)

    def _answered(self, calls: Sequence[T], pending: bool) -> list[T]:
        """The calls that get a result, in the order of the results."""
        return self._shuffled(calls)[: self.rng.randint(0, len(calls) - 1) if pending else len(calls)]

    def _write(self, event: Event, pending: bool, last: bool) -> None:
        if event == "step":
            self._step(pending)
        elif event == "assistant":
            self._assistant(last)
        elif event == "user":
            self._user()
        else:
            self._system()

    def _open(self, events: list[Event]) -> None:
        """Write what stands before the first event; may change the events."""

    def _close(self) -> None:
        """Write what stands behind the last event."""

    def _user(self) -> None:
        raise NotImplementedError

    def _assistant(self, last: bool) -> None:
        raise NotImplementedError

    def _step(self, pending: bool) -> None:
        raise NotImplementedError

    def _system(self) -> None:
        raise NotImplementedError

    def body(self) -> Any:
        """What was written, as a request body or a bare list."""
        if self._chance(0.1) and not self.head:
            return self.messages
        return {**self.head, self.key: self.messages, "temperature": 0.5}
