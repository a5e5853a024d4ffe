"""What a terminal agent sends in place of its history: the steps that a policy keeps, or a memory of its own.

Terminus-2, the agent of Harbor, talks in plain turns: a task, then a reply and what the terminal showed, again and
again. A policy sees each reply as a call and what was shown as its result, for that is what they are: it keeps, masks
or drops both together, and weights for agents fit. What is sent are plain turns again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from forgetless.errors import ConfigError
from forgetless.intake import Terms, take
from forgetless.messages import Message, Text
from forgetless.policies.ccm.policy import LIMIT, NEW, ccm
from forgetless.registry import LASTING
from forgetless.replies.loose import listed, string
from forgetless.session import Session
from forgetless.tokens import for_model, model_facts

__all__ = ["UNLIMITED", "Keeper", "Rewritten", "Steps"]

UNLIMITED = 10**9
"""A budget that no history meets."""

TASK = (0,)
"""The message that holds the task stays, whatever the policy."""

Wire: TypeAlias = Mapping[str, Any]


class Keeper(Protocol):
    """Makes the requests of one run.

    Attributes:
        note: what is worth recording of the last request and its reply, as plain JSON values.
    """

    note: dict[str, Any]

    def prepare(self, history: Sequence[Wire]) -> list[dict[str, Any]]:
        """The messages to send; the last one is a user's.

        Args:
            history: plain turns of chat, from the task to the newest output.

        Raises:
            BudgetError: what must stay does not fit.
        """

    def observe(self, reply: str, usage: object) -> str:
        """The reply as its agent may see it.

        Args:
            reply: to the request that was prepared last.
            usage: the provider's, or None.
        """


class Steps:
    """The task, the steps that a policy keeps, and the newest one, in a session."""

    def __init__(self, model: str, policy: str = LASTING, budget: int | None = None, **options: Any) -> None:
        """Begin a run.

        Args:
            model: of the agent, by whose name tokens are counted.
            policy: by name.
            budget: most tokens of a request; by default the model's window less an eighth for the reply.
            options: the policy's own.

        Raises:
            ConfigError: unknown policy or option, or no usable budget.
        """
        self.note: dict[str, Any] = {}
        budget = _known(budget, model)
        # What a terminal shows can be long: an agent had better see a part of it than end there.
        self._session = Session(budget=budget, policy=policy, dialect="chat", model=model, truncate=True, **options)

    def prepare(self, history: Sequence[Wire]) -> list[dict[str, Any]]:
        """As the session prepares it."""
        done = self._session.prepare(list(_stepped(history)), pins=TASK)
        forms = [entry.form for entry in done.ledger]
        self.note = {
            "tokens": done.tokens,
            "compressed": forms.count("compressed"),
            "omitted": forms.count("omitted"),
            "evictions": self._session.evictions,
        }
        return _alternating(map(_plain, done.messages))

    def observe(self, reply: str, usage: object) -> str:
        """The reply as it is."""
        self._session.observe(reply, usage)
        return reply


class Rewritten:
    """The task, the memory that the agent wrote last, and the newest output (CCM).

    After a reply without a memory that could be read, what was said since the last one is sent as well.
    """

    def __init__(
        self,
        model: str,
        budget: int | None = None,
        *,
        limit: int = LIMIT,
        edits: bool = False,
        screen: str = "",
        marks: bool = False,
    ) -> None:
        """Begin a run.

        Args:
            model: of the agent, by whose name tokens are counted.
            budget: as for `Steps`.
            limit: most tokens of the memory.
            edits: let the agent change lines of its memory in place of writing it anew.
            screen: what stands between the task and the first output in the first message, so that the task does not
                change and the output is gone with the next one.
            marks: whether what does not change is a block of its own, marked for Anthropic's cache.

        Raises:
            ConfigError: an option is wrong, or no usable budget.
        """
        self.note: dict[str, Any] = {}
        self.memory = ""
        counter = for_model(model)
        made = ccm("terminal", edits, limit, counter=counter)
        self._rewriter = replace(made, dialect="anthropic") if marks else made
        self._terms = Terms(_known(budget, model), "chat", counter, model)
        self._screen = screen
        self._since = self._units = 0

    def prepare(self, history: Sequence[Wire]) -> list[dict[str, Any]]:
        """Task, memory and newest output, one message as a rule."""
        intake = take([*self._opening(history[0]), *history[1:]], self._terms, TASK)
        self._units = len(intake.units)
        context = self._rewriter.prompt(intake.units, self.memory, intake.budget, since=self._since)
        self.note = {"tokens": context.tokens}
        return [dict(message) for message in intake.finish(context).messages]

    def observe(self, reply: str, usage: object) -> str:
        """The reply without its memory."""
        read = self._rewriter.read(Message("assistant", (Text(reply),)), self.memory)
        self.memory = read.memory
        if read.outcome in NEW:
            self._since = self._units + 1  # it knows of all up to this reply
        self.note |= {"memory": self.memory, "outcome": read.outcome}
        return "".join(part.text for part in read.reply.parts if isinstance(part, Text))

    def _opening(self, first: Wire) -> list[Wire]:
        """The first message as the task, and the output that came with it."""
        task, found, shown = first["content"].rpartition(self._screen) if self._screen else ("", "", "")
        if not found:
            return [first]
        return [{**first, "content": task}, {**first, "content": f"{found.lstrip()}{shown}"}]


def _known(budget: int | None, model: str) -> int | None:
    if budget is None and model_facts(model) is None:
        raise ConfigError(f"the window of model {model!r} is not known: give a budget in tokens")
    return budget


def _stepped(history: Sequence[Wire]) -> Iterator[Wire]:
    """Plain turns as calls with their results."""
    call = ""
    for index, message in enumerate(history):
        if message["role"] == "assistant":
            call = f"call_{index}"
            function = {"name": "terminal", "arguments": message["content"]}
            yield {**message, "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]}
        elif call:
            yield {"role": "tool", "tool_call_id": call, "content": message["content"]}
            call = ""
        else:
            yield message


def _plain(message: Wire) -> dict[str, Any]:
    """A call or a result as the turn that it was."""
    if message["role"] == "tool":
        return {"role": "user", "content": _text(message["content"])}
    calls = listed(message.get("tool_calls"))
    if not calls:
        return dict(message)
    said = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**said, "content": calls[0]["function"]["arguments"]}


def _alternating(messages: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of which no two in a row are the user's, such as a summary behind the task: not every model takes it."""
    sent: list[dict[str, Any]] = []
    for message in messages:
        if sent and message["role"] == sent[-1]["role"] == "user":
            sent[-1]["content"] = f"{_text(sent[-1]['content'])}\n\n{_text(message['content'])}"
        else:
            sent.append(message)
    return sent


def _text(content: object) -> str:
    return string(content) or "\n".join(string(block.get("text")) for block in listed(content))
