"""`forgetless chat`: a conversation in the terminal, kept within a budget, with a gauge of what was sent."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import signature
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from forgetless.errors import ConfigError, ForgetlessError, ModelError
from forgetless.instructions.load import recogniser
from forgetless.instructions.memory import standing
from forgetless.intake import Compaction, Terms, take
from forgetless.models.base import Model
from forgetless.models.load import load_model
from forgetless.registry import LASTING, RECOGNISER
from forgetless.replies.loose import listed, mapping, string
from forgetless.session import Session
from forgetless.tokens import for_model

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Talk", "chat"]

HELP = """\
/ledger       what stayed of the last request, what left, and why
/pins         what stays: pinned messages, and instructions that were recognised
/pin [N]      keep message N, or the last one, whatever happens
/unpin N      no longer, also where it was taken for an instruction
/policy NAME  choose by another policy from here on
/budget N     another budget from here on
/help         this
/quit         end; so does Ctrl-D; Ctrl-C stops a reply"""

BAR = 20
"""Width of the gauge in characters."""


def chat(
    *,
    upstream: str = "embedded",
    model: str | None = None,
    policy: str = LASTING,
    budget: int | None = None,
    system: str | None = None,
) -> None:
    """Talk to a model within a token budget; after each reply a line says what was sent of the whole history.

    Args:
        upstream: the address of an OpenAI-compatible server, the path of a .gguf file, or `embedded`.
        model: the model's name at a server.
        policy: what decides which messages stay.
        budget: most tokens of a request; by default the model's window less an eighth for the reply.
        system: a system message to begin with.
    """
    from rich.console import Console

    for stream in (sys.stdout, sys.stdin):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    width = None if sys.stdout.isatty() else 140  # a pipe has no edge to wrap at
    console = Console(markup=False, highlight=False, width=width)
    with closing(load_model(upstream, model)) as loaded:
        room = most(loaded) if budget is None else budget
        Talk(loaded, console, room, policy, system).run(_typed())


@dataclass
class Talk:
    """One conversation: what was said, what is pinned, and the session that keeps it within the budget.

    Attributes:
        model: that answers.
        console: where all of it is shown.
        budget: most tokens of a request.
        policy: name of the policy.
        system: a system message to begin with.
        messages: the whole history.
        pins: indices of messages that stay.
        dropped: indices of messages that are to count as instructions no more.
    """

    model: Model
    console: Console
    budget: int
    policy: str = LASTING
    system: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    pins: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.system:
            self.messages.append({"role": "system", "content": self.system})
        self._last: Compaction | None = None
        self._find = recogniser(RECOGNISER)
        self._session = self._new(self.policy, self.budget)

    def run(self, lines: Iterator[str]) -> None:
        """Take line after line, a command or something to say, until they end or `/quit` comes."""
        self.console.print(f"{self.model.name}, policy {self.policy}, budget {self.budget:,}; /help lists commands")
        for line in lines:
            text = line.strip()
            if text == "/quit":
                return
            try:
                if text.startswith("/"):
                    self.command(text)
                elif text:
                    self.say(text)
            except ForgetlessError as error:
                self._note(" ".join(str(error).split()))
            except KeyboardInterrupt:
                self._note("stopped")

    def say(self, text: str) -> None:
        """Say something and show the reply as it comes; where none comes, it counts as not said.

        Raises:
            ForgetlessError: what must stay is over the budget, or the model failed.
        """
        before = len(self.messages)
        self.messages.append({"role": "user", "content": text})
        said: list[str] = []
        try:
            self._drop()
            done = self._session.prepare(self.messages, pins=self.pins)
            usage = self._stream(done, said)
            if not said:
                raise ModelError("the model said nothing")
        except (ForgetlessError, KeyboardInterrupt):
            del self.messages[before:]
            raise
        self.messages.append({"role": "assistant", "content": "".join(said)})
        self._session.observe(self.messages[-1], usage)
        self._last = done
        self._note(gauge(done))

    def _stream(self, done: Compaction, said: list[str]) -> Any:
        """Show the reply and add its pieces to `said`; Ctrl-C ends it where it is. Its usage, where it came."""
        usage: Any = None
        asked = {"messages": done.messages, "stream_options": {"include_usage": True}}
        try:
            with closing(self.model.stream(asked)) as chunks:
                for chunk in chunks:
                    usage = chunk.get("usage") or usage
                    for choice in listed(chunk.get("choices"))[:1]:
                        if piece := string(mapping(choice.get("delta")).get("content")):
                            said.append(piece)
                            self.console.file.write(visible(piece))
                            self.console.file.flush()
        except KeyboardInterrupt:
            if not said:
                raise
        finally:
            if said:
                self.console.print()
        return usage

    def command(self, text: str) -> None:
        """Do what a command says.

        Raises:
            ConfigError: there is no such command, or what follows it makes no sense.
        """
        known: dict[str, Callable[..., None]] = {
            "/ledger": self._ledger,
            "/pins": self._list_pins,
            "/pin": self._pin,
            "/unpin": self._unpin,
            "/policy": self._choose_policy,
            "/budget": self._choose_budget,
            "/help": lambda: self.console.print(HELP),
        }
        name, *rest = text.split()
        if name not in known:
            close = get_close_matches(name, [*known, "/quit"], n=1)
            raise ConfigError(f"unknown command {name!r}; {f'did you mean {close[0]!r}?' if close else 'try /help'}")
        try:
            signature(known[name]).bind(*rest)
        except TypeError:
            raise ConfigError(f"{text!r} is not how {name} is used: see /help") from None
        known[name](*rest)

    def _new(self, policy: str, budget: int) -> Session:
        if budget <= 0:
            raise ConfigError(f"the budget must be above 0 tokens, not {budget!r}")
        counter = getattr(self.model, "counter", None) or for_model(self.model.name)
        return Session(budget=budget, policy=policy, counter=counter, dialect="chat", instructions=self._find)

    def _note(self, text: str) -> None:
        self.console.print(visible(text), style="dim")

    def _pin(self, number: str = "") -> None:
        index = self._index(number) if number else len(self.messages) - 1
        if index < 0:
            raise ConfigError("there is nothing to pin yet")
        self.pins.add(index)
        self.dropped.discard(index)
        self._note(f"pinned message {index}: {_begins(self.messages[index])}")

    def _unpin(self, number: str) -> None:
        index = self._index(number)
        self.pins.discard(index)
        self.dropped.add(index)
        self._note(f"message {index} may go")

    def _drop(self) -> None:
        """Have the recogniser find nothing in what was dropped."""
        assert self._find is not None
        self._find.dropped = {self.messages[index]["content"] for index in self.dropped}

    def _list_pins(self) -> None:
        assert self._find is not None
        self._drop()
        for index in sorted(self.pins):
            self._note(f"{index}, pinned: {_begins(self.messages[index])}")
        found = standing(take(self.messages, Terms(self.budget, "chat")).units, self._find)
        for one in found:
            state = "instruction" if one.state == "instruction" else f"instruction, {one.state}"
            self._note(f"{one.unit}, {state}: {' '.join(one.text.split())}")
        if not self.pins and not found:
            self._note("nothing is pinned, and no instruction was recognised")

    def _index(self, number: str) -> int:
        if not number.isdecimal() or int(number) >= len(self.messages):
            raise ConfigError(f"there is no message {number!r}: the last one is {len(self.messages) - 1}")
        return int(number)

    def _choose_policy(self, name: str) -> None:
        self._session = self._new(name, self.budget)
        self.policy = name
        self._note(f"policy {name} from here on")

    def _choose_budget(self, number: str) -> None:
        if not number.isdecimal():
            raise ConfigError(f"a budget is a whole number of tokens, not {number!r}")
        self._session = self._new(self.policy, int(number))
        self.budget = int(number)
        self._note(f"budget {self.budget:,} from here on")

    def _ledger(self) -> None:
        from rich.table import Table

        if self._last is None:
            raise ConfigError("nothing was sent yet")
        table = Table("message", "role", "form", "reason", "score", "tokens", "begins with")
        for entry in self._last.ledger:
            first = self.messages[entry.messages[0]]
            score = "" if entry.score is None else f"{entry.score:.3g}"
            tokens = f"{entry.tokens_before:,} → {entry.tokens_after:,}"
            numbers = ", ".join(map(str, entry.messages))
            table.add_row(numbers, first["role"], entry.form, entry.reason, score, tokens, _begins(first))
        self.console.print(table)
        self._note(gauge(self._last))


def most(model: Model) -> int:
    """The budget where none is given: the model's window less an eighth for the reply.

    Raises:
        ConfigError: the window is not known.
    """
    if model.window is None:
        raise ConfigError(f"the window of model {model.name!r} is not known: give a budget in tokens")
    return model.window - model.window // 8


def gauge(done: Compaction) -> str:
    """One line: tokens sent, of the whole history and of the budget, messages kept and dropped, tokens reused."""

    def messages(*forms: str) -> int:
        return sum(len(entry.messages) for entry in done.ledger if entry.form in forms)

    filled = min(BAR, round(BAR * done.tokens / done.budget))
    return (
        f"[{'#' * filled}{'.' * (BAR - filled)}] sent {done.tokens:,} of {done.tokens_before:,} tokens, "
        f"budget {done.budget:,}; {messages('raw', 'compressed')} messages kept, {messages('omitted')} dropped; "
        f"{done.reused_tokens:,} tokens reused"
    )


def visible(text: str) -> str:
    """`text` without what a terminal would obey: control characters, and those that turn the direction of writing."""
    return "".join(c for c in text if c in "\n\t\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def _begins(message: dict[str, Any]) -> str:
    text = " ".join(visible(message["content"]).split())
    return text[:48] + ("…" if len(text) > 48 else "")


def _typed() -> Iterator[str]:
    """Lines of standard input, with a prompt where a person types them."""
    if sys.stdin is None:
        return
    asks = sys.stdin.isatty()
    if asks:
        with suppress(ImportError):
            import readline  # noqa: F401  # editing and history for input()
    while True:
        try:
            yield input("> " if asks else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
