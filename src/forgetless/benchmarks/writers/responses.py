"""Random Responses requests."""

from __future__ import annotations

import json
from typing import Any

from forgetless.benchmarks.writers.base import PNG, Event, Json, Writer

__all__ = ["Responses"]


class Responses(Writer):
    """Bare and full messages, reasoning, hosted tools, references, calls and outputs in any legal order."""

    key = "input"

    def _open(self, events: list[Event]) -> None:
        if self._chance(0.08):
            events.insert(0, "assistant")
        if self._chance(0.8):
            self.head = {"model": self._pick("gpt-5-mini", "o4-mini", "my-model")}
            if self._chance(0.5):
                self.head["instructions"] = self._text(60)
            if self._chance(0.5):
                self.head["tools"] = [
                    {"type": "function", "name": name, "parameters": shape, "strict": False}
                    for name, shape in self._schemas()
                ]
        elif self._chance(0.3):
            self._system()

    def body(self) -> Any:
        """What was written; a lone message may stand as a bare string."""
        only = self.messages[0].get("content") if len(self.messages) == 1 else None
        if self.head and isinstance(only, str) and only and self.messages[0]["role"] == "user" and self._chance(0.5):
            return {**self.head, "input": only}
        return super().body()

    def _user(self) -> None:
        content: Any = self._text() if self._chance(0.97) else ""
        if self._chance(0.25):
            content = [{"type": "input_text", "text": self._text()}, *self._media()]
        typed = {"type": "message"} if self._chance(0.3) else {}
        self.messages.append({**typed, "role": "user", "content": content})

    def _media(self) -> list[Json]:
        kinds: list[Json] = [
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            {"type": "input_file", "file_id": "file-abc"},
        ]
        return self.rng.sample(kinds, self.rng.randint(0, 2))

    def _assistant(self, last: bool) -> None:
        if self._chance(0.03) and not last:
            self.messages.append({"type": "item_reference", "id": self._new_id("msg")})
            return
        if self._chance(0.03) and not last:
            self._approval()
            return
        hosted = self._chance(0.1)
        thought = self._reason(0.3)
        if hosted:
            action = {"type": "search", "query": self._text(4)}
            searched = {
                "type": "web_search_call",
                "id": self._new_id("ws"),
                "status": "completed",
                "action": action,
            }
            self.messages.append(searched)
        if not thought and self._chance(0.4):
            self.messages.append({"role": "assistant", "content": self._text()})
            return
        said: Json = {"type": "output_text", "text": self._text(), "annotations": []}
        parts = [said if self._chance(0.95) else {"type": "refusal", "refusal": self._text(6)}]
        head = {"type": "message", "id": self._new_id("msg"), "role": "assistant", "status": "completed"}
        self.messages.append({**head, "content": parts * self._pick(1, 1, 1, 2)})

    def _approval(self) -> None:
        ident = self._new_id("mcpr")
        asked = {"type": "mcp_approval_request", "id": ident, "server_label": "s", "name": "tool_0"}
        self.messages.append({**asked, "arguments": json.dumps(self._arguments())})
        self.messages.append({"type": "mcp_approval_response", "approval_request_id": ident, "approve": True})

    def _reason(self, share: float) -> bool:
        if not self._chance(share):
            return False
        summary = [{"type": "summary_text", "text": self._text(30)} for _ in range(self.rng.randint(0, 2))]
        sealed = f"gAAAA{self.rng.getrandbits(1024):0256x}"
        item = {
            "type": "reasoning",
            "id": self._new_id("rs"),
            "summary": summary,
            "encrypted_content": sealed,
        }
        self.messages.append(item)
        return True

    def _step(self, pending: bool) -> None:
        self._reason(0.4)
        calls = [self._call() for _ in range(self._pick(1, 1, 1, 2, 3))]
        if self._chance(0.15) and not pending:
            for call in calls:
                self.messages += [call, self._output(call)]
            return
        self.messages += calls
        if self._chance(0.1) and not pending:
            self._pick(self._system, self._remark)()
        self.messages += map(self._output, self._answered(calls, pending))

    def _remark(self) -> None:
        self.messages.append({"role": "assistant", "content": self._text(9)})

    def _call(self) -> Json:
        ident = {"call_id": self._new_id("call")}
        kind = self.rng.choices(("function", "custom", "computer", "shell"), (84, 8, 4, 4))[0]
        if kind == "custom":
            return {"type": "custom_tool_call", **ident, "name": "patch", "input": self._text(20)}
        if kind == "computer":
            act = {"type": "click", "button": "left", "x": 1, "y": 2}
            done = {"status": "completed", "pending_safety_checks": []}
            return {"type": "computer_call", "id": self._new_id("cu"), **ident, "action": act, **done}
        if kind == "shell":
            return {
                "type": "shell_call",
                **ident,
                "action": {"commands": [self._text(5)]},
                "status": "completed",
            }
        own = {"id": self._new_id("fc")} if self._chance(0.6) else {}
        given = json.dumps(self._arguments())
        return {"type": "function_call", **own, **ident, "name": "tool_0", "arguments": given}

    def _output(self, call: Json) -> Json:
        output: Any = self._result() if self._chance(0.95) else ""
        if call["type"] == "computer_call":
            output = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
        elif call["type"] == "shell_call":
            output = [{"stdout": output, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
        elif self._chance(0.15):
            output = [{"type": "input_text", "text": output}, *self._media()]
        return {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": output}

    def _system(self) -> None:
        self.messages.append({"role": self._pick("developer", "system"), "content": self._text(20)})
