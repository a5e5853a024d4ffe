"""Random Messages requests."""

from __future__ import annotations

from typing import Any

from forgetless.benchmarks.writers.base import PNG, Event, Json, Writer

__all__ = ["Anthropic"]


class Anthropic(Writer):
    """Words behind results, thinking of both kinds, server tools, cache marks, system messages in places."""

    def _open(self, events: list[Event]) -> None:
        self.thinking = self._pick("", "", "enabled", "adaptive")
        self.fresh = True  # nothing said yet in this turn: enabled thinking comes first
        self.marks = 3
        self.told = self._chance(0.2)  # a newer model, which takes system messages between others
        if self.thinking == "enabled" and events[-1] == "assistant":
            events.append("user")  # no prefill with thinking
        self.head = {"model": self._pick("claude-sonnet-4-5", "claude-opus-4-8"), "max_tokens": 1024}
        if self._chance(0.6):
            self.head["system"] = self._text(60)
            if self._chance(0.4):
                self.head["system"] = [self._mark({"type": "text", "text": self._text(60)}) for _ in range(2)]
        if self.thinking:
            budget = {"budget_tokens": 1024} if self.thinking == "enabled" else {}
            self.head["thinking"] = {"type": self.thinking, **budget}
        if self._chance(0.5):
            self.head["tools"] = [{"name": name, "input_schema": shape} for name, shape in self._schemas()]
        if not self.thinking and self._chance(0.15):
            self.head = {}

    def _mark(self, block: Json) -> Json:
        if self.marks and self._chance(0.15):
            self.marks -= 1
            return {**block, "cache_control": {"type": "ephemeral"}}
        return block

    def _user(self) -> None:
        content: Any = self._text()
        if self._chance(0.4):
            content = [self._mark({"type": "text", "text": self._text()}), *self._media()]
        self.messages.append({"role": "user", "content": content})
        self.fresh = True

    def _media(self) -> list[Json]:
        pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
        kinds: list[Json] = [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "source": pdf},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": self._text()},
            },
        ]
        return self.rng.sample(kinds, self.rng.choice((0, 0, 1, 2)))

    def _thoughts(self) -> list[Json]:
        must = self.thinking == "enabled" and self.fresh
        if not must and (not self.thinking or self._chance(0.6)):
            return []
        signature = f"{self.rng.getrandbits(256):064x}"
        blocks: list[Json] = [{"type": "thinking", "thinking": self._text(60), "signature": signature}]
        if self._chance(0.15):
            blocks.insert(self.rng.randint(0, 1), {"type": "redacted_thinking", "data": f"Ev{signature}"})
        return blocks

    def _assistant(self, last: bool) -> None:
        blocks = self._thoughts()
        said: Json = {"type": "text", "text": self._text()}
        if last:
            said["text"] = said["text"].rstrip()
        self.fresh = False
        if self._chance(0.12):
            ident = self._new_id("srvtoolu")
            found = {
                "type": "web_search_result",
                "url": "https://example.com",
                "title": "t",
                "encrypted_content": "E",
            }
            blocks += [
                {
                    "type": "server_tool_use",
                    "id": ident,
                    "name": "web_search",
                    "input": {"query": self._text(4)},
                },
                {"type": "web_search_tool_result", "tool_use_id": ident, "content": [found]},
            ]
        content: Any = [*blocks, self._mark(said)] if blocks or self._chance(0.5) else said["text"]
        self.messages.append({"role": "assistant", "content": content})

    def _step(self, pending: bool) -> None:
        blocks = self._thoughts()
        if self._chance(0.5):
            blocks.append({"type": "text", "text": self._text(15)})
        calls: list[Json] = [
            {"type": "tool_use", "id": self._new_id("toolu"), "name": "tool_0", "input": self._arguments()}
            for _ in range(self._pick(1, 1, 1, 2, 3))
        ]
        self.messages.append({"role": "assistant", "content": [*blocks, *calls]})
        self.fresh = False
        if pending:  # all results come in one message, so either all are there or none
            return
        answers = [self._mark(self._answer(call["id"])) for call in self._shuffled(calls)]
        words = [{"type": "text", "text": self._text()}] if self._chance(0.15) else []
        self.fresh = bool(words)
        self.messages.append({"role": "user", "content": [*answers, *words]})

    def _answer(self, ident: str) -> Json:
        content: Any = self._result()
        if self._chance(0.2):
            content = [{"type": "text", "text": content}, *self._media()]
        elif self._chance(0.04):
            content = [{"type": "tool_reference", "tool_name": "tool_0"}]
        failed = {"is_error": True} if self._chance(0.1) else {}
        shown = {} if self._chance(0.05) else {"content": content}
        return {"type": "tool_result", "tool_use_id": ident, **shown, **failed}

    def _write(self, event: Event, pending: bool, last: bool) -> None:
        if event == "system" and last:
            event = "user"
        super()._write(event, pending, last)

    def _system(self) -> None:
        if self.told and self.messages[-1]["role"] == "user":
            self.messages.append({"role": "system", "content": self._text(20)})
            self._assistant(False)

    def _close(self) -> None:
        if self.told and self.messages[-1]["role"] == "user" and self._chance(0.3):
            self.messages.append({"role": "system", "content": self._text(20)})
