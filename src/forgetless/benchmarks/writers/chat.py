"""Random Chat Completions requests."""

from __future__ import annotations

import json
from typing import Any

from forgetless.benchmarks.writers.base import PNG, Event, Json, Writer

__all__ = ["Chat"]


class Chat(Writer):
    """System only, assistant first, media, names, refusals, audio, custom and legacy calls, reused ids."""

    def _open(self, events: list[Event]) -> None:
        self.numbered = self._chance(0.1)  # servers that begin at call_0 in every reply
        self.legacy = self._chance(0.04)
        if self._chance(0.6):
            self.messages.append({"role": self._pick("system", "developer"), "content": self._content(60)})
            if len(events) == 1 and self._chance(0.4):
                events[:] = ["system"]
        if self._chance(0.08):
            events.insert(0, "assistant")
        if self._chance(0.8):
            self.head = {"model": self._pick("gpt-4o", "gpt-4.1-mini", "qwen2.5-7b-instruct", "my-model")}
            if self._chance(0.5):
                self.head["tools"] = [
                    {"type": "function", "function": {"name": name, "parameters": shape}}
                    for name, shape in self._schemas()
                ]

    def _content(self, most: int = 40) -> Any:
        if self._chance(0.8):
            return self._text(most) if self._chance(0.97) else ""
        return [{"type": "text", "text": self._text(most)} for _ in range(self.rng.randint(1, 3))]

    def _user(self) -> None:
        content = self._content()
        if self._chance(0.15):
            content = [{"type": "text", "text": self._text()}, *self._shuffled(self._media())]
        named = {"name": "ann"} if self._chance(0.1) else {}
        self.messages.append({"role": "user", "content": content, **named})

    def _media(self) -> list[Json]:
        kinds: list[Json] = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"type": "file", "file": {"file_id": "file-abc"}},
        ]
        return self.rng.sample(kinds, self.rng.randint(1, 2))

    def _assistant(self, last: bool) -> None:
        message: Json = {"role": "assistant", "content": self._content()}
        if self._chance(0.05):
            message |= {"content": None, "refusal": self._text(8)}
        elif self._chance(0.04):
            message |= {"content": None, "audio": {"id": self._new_id("audio")}}
        elif self._chance(0.05):
            message["content"] = [{"type": "refusal", "refusal": self._text(8)}]
        elif self._chance(0.1):
            message["reasoning_content"] = self._text(60)
        self.messages.append(message)

    def _step(self, pending: bool) -> None:
        if self.legacy and not pending:
            call = {"name": "old", "arguments": json.dumps(self._arguments())}
            self.messages.append({"role": "assistant", "content": None, "function_call": call})
            self.messages.append({"role": "function", "name": "old", "content": self._result()})
            return
        calls = [self._call(i) for i in range(self._pick(1, 1, 1, 2, 3))]
        message: Json = {
            "role": "assistant",
            "content": self._pick(None, self._text(20), ""),
            "tool_calls": calls,
        }
        if self._chance(0.1):
            del message["content"]
        if self._chance(0.1):
            message["reasoning_content"] = self._text(40)
        self.messages.append(message)
        for call in self._answered(calls, pending):
            content = self._result() if self._chance(0.95) else ""
            shown: Any = [{"type": "text", "text": content}, {"type": "text", "text": ""}]
            content = shown if self._chance(0.1) else content
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def _call(self, number: int) -> Json:
        ident = f"call_{number}" if self.numbered else self._new_id("call")
        if self._chance(0.1):
            return {"id": ident, "type": "custom", "custom": {"name": "patch", "input": self._text(20)}}
        given = json.dumps(self._arguments()) if self._chance(0.8) else "{}"
        return {"id": ident, "type": "function", "function": {"name": "tool_0", "arguments": given}}

    def _system(self) -> None:
        self.messages.append({"role": self._pick("developer", "system"), "content": self._content(20)})
