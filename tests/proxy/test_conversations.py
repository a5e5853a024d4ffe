"""Which conversation a request is taken for, by clients that keep, cut, edit and branch what they send."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forgetless.proxy import conversations
from forgetless.proxy.app import build
from forgetless.proxy.settings import Settings
from forgetless.stores.base import Node
from forgetless.stores.inmemory import InMemory
from forgetless.stores.sqlite import Sqlite
from live import Provider, Said, serving
from sent import breaks, check, count

BUDGET = 400
SYSTEM = {"role": "system", "content": "be brief"}


def ask(n: int, about: str = "word") -> dict[str, Any]:
    return {"role": "user", "content": f"question {n} " + f"{about} " * 40}


@dataclass
class Chat:
    """A client with one conversation.

    Attributes:
        base: address of its proxy.
        http: what it speaks through.
        messages: its history.
        changed: what it makes of a reply before it appends it.
        headers: that it sends.
        answers: headers of what came back.
        sent: bodies as they went.
    """

    base: str
    http: httpx2.Client
    messages: list[dict[str, Any]] = field(default_factory=lambda: [SYSTEM])
    changed: Callable[[dict[str, Any]], dict[str, Any]] = lambda message: message
    headers: dict[str, Any] = field(default_factory=lambda: {"authorization": "Bearer k"})
    answers: list[httpx2.Headers] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def send(self) -> dict[str, Any]:
        data = json.dumps({"model": "m", "messages": self.messages}).encode()
        answer = self.http.post(f"{self.base}/v1/chat/completions", content=data, headers=self.headers)
        assert answer.status_code == 200, answer.text
        self.sent.append(data)
        self.answers.append(answer.headers)
        reply: dict[str, Any] = answer.json()["choices"][0]["message"]
        return reply

    def say(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.messages.append(self.changed(self.send()))

    def talk(self, turns: range, about: str = "word") -> None:
        for n in turns:
            self.say(ask(n, about))

    @property
    def conversations(self) -> list[str]:
        """The ids that the proxy gave, each once, in order."""
        return list(dict.fromkeys(told["x-forgetless-conversation"] for told in self.answers))


@pytest.fixture
def exact(provider: Provider) -> Provider:
    """The provider, counting tokens as forgetless does."""
    provider.answer = lambda _, body: Said(f"ok {len(provider.seen)}", tokens=count(body))
    return provider


def went(provider: Provider, since: int = 0) -> list[bytes]:
    return [data for _, data, _ in provider.seen[since:]]


def test_many_turns_are_one_conversation(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    chat = Chat(start(store), http)
    chat.talk(range(20))
    (name,) = chat.conversations
    assert 1 <= check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET) <= 7
    (summary,) = store.conversations()
    assert (summary.conversation, summary.messages, summary.requests) == (name, 40, 20)
    assert len(list(store.branches(summary.caller, name))) == 1
    assert store.check() == []


def wire(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.wire or b"")
    return found


def texts(messages: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """What messages say, whatever else stands in them."""
    found = [(message["role"], message["content"]) for message in messages]
    return [(role, said if isinstance(said, str) else said[0]["text"]) for role, said in found]


def alone(exact: Provider, base: str, http: httpx2.Client, histories: Iterable[Sequence[dict[str, Any]]]) -> list[int]:
    """How many evictions each conversation takes when it is the only one; each in a proxy that knows none."""
    found = []
    for number, history in enumerate(histories):
        since = len(exact.seen)
        name = {"authorization": f"Bearer alone {number}"}
        for end, message in enumerate(history, 1):
            if message["role"] == "user":
                Chat(base, http, list(history[:end]), headers=name).send()
        found.append(breaks(went(exact, since)))
    return found


def without_refusal(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": message["role"], "content": message["content"]}


def empty_for_null(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": message["content"] or ""}


def trimmed(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": message["content"].strip()}


def with_more(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "name": "bot", "id": "msg-17", "metadata": {"shown": True}}


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": message["content"]}]}


@pytest.mark.parametrize("changed", [without_refusal, empty_for_null, trimmed, with_more, in_parts])
def test_what_clients_make_of_a_reply_changes_nothing(
    changed: Callable[[dict[str, Any]], dict[str, Any]],
    exact: Provider,
    store: InMemory,
    start: Callable[..., str],
    http: httpx2.Client,
) -> None:
    exact.answer = lambda _, body: Said(f" ok {len(exact.seen)}\n", tokens=count(body))
    chat = Chat(start(store), http, changed=changed)
    chat.talk(range(14))
    assert len(chat.conversations) == 1
    assert 1 <= check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET) <= 5
    (summary,) = store.conversations()
    branches = list(store.branches(summary.caller, summary.conversation))
    main = max(branches, key=lambda branch: len(branch.nodes))
    assert texts(map(wire, main.nodes))[:-1] == texts(chat.messages)[1:-1]
    if changed is not trimmed:
        assert summary.messages == 28, "each message once"


def test_a_reply_that_only_calls_may_come_back_with_empty_content(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    def script(_: str, body: Any) -> Said:
        n = len(exact.seen)
        return Said("", [(f"c{n}", "look", "{}")], tokens=count(body)) if n % 4 else Said("done", tokens=count(body))

    exact.answer = script
    chat = Chat(start(store), http, changed=empty_for_null)
    chat.say(ask(0))
    for n in range(1, 24):
        calls = chat.messages[-1].get("tool_calls")
        tool = {"role": "tool", "tool_call_id": calls[0]["id"], "content": f"saw {n} " * 20} if calls else ask(n)
        chat.say(tool)
    assert len(chat.conversations) == 1
    assert 1 <= check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET) <= 8
    (summary,) = store.conversations()
    assert summary.messages == 48


def test_a_clock_in_the_system_prompt_keeps_the_conversation(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    chat = Chat(start(store), http)
    for n in range(14):
        chat.messages[0] = {"role": "system", "content": f"It is {n:02}:30 o'clock."}
        chat.say(ask(n))
    assert len(chat.conversations) == 1
    check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET)
    (summary,) = store.conversations()
    assert summary.messages == 28
    (branch,) = store.branches(summary.caller, summary.conversation)
    assert b"13:30" in branch.system[0]


def test_regenerating_and_rewinding_stay_in_the_conversation(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    chat = Chat(start(store), http)
    chat.talk(range(8))
    del chat.messages[-1]
    before = len(chat.sent)
    chat.messages.append(chat.send())  # regenerate
    del chat.messages[-4:]
    chat.talk(range(20, 22))  # rewind by two turns
    chat.messages[-4] = ask(30, "edited")
    del chat.messages[-3:]
    chat.messages.append(chat.send())  # edit and go on
    chat.talk(range(40, 44))
    assert len(chat.conversations) == 1
    pairs = list(zip(chat.sent, went(exact), strict=True))
    assert pairs[before - 1] == pairs[before], "the same request is sent the same way"
    check(pairs, "chat", BUDGET)
    (summary,) = store.conversations()
    branches = list(store.branches(summary.caller, summary.conversation))
    assert len(branches) == 4
    assert texts(map(wire, branches[0].nodes)) == texts(chat.messages)[1:]
    assert store.check() == []


def test_an_edit_in_the_middle_is_chosen_for_anew(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    chat = Chat(start(store), http)
    chat.talk(range(12))
    chat.messages[3] = ask(1, "edited")
    chat.talk(range(12, 20))
    assert len(chat.conversations) == 1
    check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET)
    assert store.check() == []


def test_branches_go_on_side_by_side_each_with_its_own_choice(
    exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start()
    trunk = Chat(base, http)
    trunk.talk(range(4))
    branches = [Chat(base, http, list(trunk.messages)) for _ in range(2)]
    kept: list[list[bytes]] = [[], []]
    for n in range(16):
        for side, branch in enumerate(branches):
            branch.say(ask(n, f"side{side}"))
            kept[side].append(exact.seen[-1][1])
    for branch, bodies in zip(branches, kept, strict=True):
        check(list(zip(branch.sent, bodies, strict=True)), "chat", BUDGET)
    single = alone(exact, base, http, [branch.messages for branch in branches])
    assert [breaks(bodies) for bodies in kept] == single


@pytest.mark.parametrize("said", ["Hello! What can I do for you?", None])
def test_two_conversations_that_begin_alike_do_not_mix(
    said: str | None, exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    def script(_: str, body: Any) -> Said:
        first = sum(message["role"] == "user" for message in body["messages"]) == 1
        return Said(said if said and first else f"ok {len(exact.seen)}", tokens=count(body))

    exact.answer = script
    base = start(store)
    chats = [Chat(base, http) for _ in range(2)]
    kept: list[list[bytes]] = [[], []]
    for n in range(14):
        for side, chat in enumerate(chats):
            chat.say({"role": "user", "content": "hi"} if n == 0 else ask(n, f"side{side}"))
            kept[side].append(exact.seen[-1][1])
    for chat, bodies in zip(chats, kept, strict=True):
        check(list(zip(chat.sent, bodies, strict=True)), "chat", BUDGET)
    if said is None:
        assert [chat.conversations for chat in chats] == [[chats[0].conversations[0]], [chats[1].conversations[0]]]
        assert chats[0].conversations != chats[1].conversations
        assert sorted(summary.messages for summary in store.conversations()) == [28, 28]
    for chat in chats:
        histories = [
            texts(map(wire, branch.nodes))
            for summary in store.conversations()
            for branch in store.branches(summary.caller, summary.conversation)
        ]
        assert texts(chat.messages)[1:] in histories, "each history stands whole in the store"
    assert [breaks(bodies) for bodies in kept] == alone(exact, base, http, [chat.messages for chat in chats])


def test_the_same_task_given_twice_is_two_conversations(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(store)
    for _ in range(3):
        Chat(base, http).talk(range(3))
    assert [(s.messages, s.requests) for s in store.conversations()] == [(6, 3)] * 3


def test_a_header_names_the_conversation(
    exact: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(store)
    chats = [Chat(base, http, headers={"x-forgetless-conversation": f"ticket {n}"}) for n in range(2)]
    for n in range(10):
        for chat in chats:
            chat.say(ask(n))
    assert [chat.conversations for chat in chats] == [["ticket 0"], ["ticket 1"]]
    assert {(s.conversation, s.messages) for s in store.conversations()} == {("ticket 0", 20), ("ticket 1", 20)}
    chats[0].headers = {"x-forgetless-conversation": ("é" * 300).encode("latin-1")}
    chats[0].say(ask(10))
    assert len(chats[0].answers[-1]["x-forgetless-conversation"]) == 200
    assert store.check() == []


@contextmanager
def proxies(upstream: str, file: Path, count: int = 1, **settings: Any) -> Iterator[list[str]]:
    """So many proxies over one SQLite file."""
    with ExitStack() as stack:
        given = {"upstream": upstream, "budget": BUDGET, "policy": "fifo", "store": str(file), **settings}
        yield [stack.enter_context(serving(build(Settings(**given)))) for _ in range(count)]


def restarted(
    exact: Provider, upstream: str, file: Path, chat: Chat, stops: Sequence[int], **settings: Any
) -> list[bytes]:
    """What a conversation is sent as when the proxy starts anew after some of its turns."""
    since = len(exact.seen)
    for begin, end in zip([0, *stops], [*stops, stops[-1] + 4], strict=True):
        with proxies(upstream, file, **settings) as (chat.base,):
            chat.talk(range(begin, end))
    return went(exact, since)


@pytest.mark.parametrize("policy", ["fifo", "bm25"])
def test_a_restart_changes_nothing(
    policy: str, exact: Provider, upstream: str, tmp_path: Path, http: httpx2.Client
) -> None:
    chat = Chat("", http)
    stops = [5, 6, 9, 10]
    bodies = restarted(exact, upstream, tmp_path / "s.db", chat, stops, policy=policy)
    exact.seen.clear()
    steady = Chat("", http)
    with proxies(upstream, tmp_path / "t.db", policy=policy) as (steady.base,):
        steady.talk(range(14))
    assert [json.loads(data)["messages"] for data in bodies] == [json.loads(d)["messages"] for d in went(exact)]
    assert len(chat.conversations) == 1
    assert 1 <= breaks(bodies) <= 5
    store = Sqlite(tmp_path / "s.db")
    (summary,) = store.conversations()
    assert (summary.messages, summary.requests, store.check()) == (28, 14, [])
    store.close()


def test_a_restart_behind_a_client_that_trims_changes_nothing(
    exact: Provider, upstream: str, tmp_path: Path, http: httpx2.Client
) -> None:
    exact.answer = lambda _, body: Said(f" ok {len(exact.seen)}\n", tokens=count(body))
    chat = Chat("", http, changed=trimmed)
    bodies = restarted(exact, upstream, tmp_path / "s.db", chat, [6, 7, 8, 9])
    exact.seen.clear()
    steady = Chat("", http, changed=trimmed)
    with proxies(upstream, tmp_path / "t.db") as (steady.base,):
        steady.talk(range(13))
    assert breaks(bodies) == breaks(went(exact))
    assert len(chat.conversations) == 1


def test_regenerating_after_a_restart_is_sent_the_same_way(
    exact: Provider, upstream: str, tmp_path: Path, http: httpx2.Client
) -> None:
    chat = Chat("", http)
    for turns in (range(4), range(4, 5), range(5, 6), range(6, 7)):
        with proxies(upstream, tmp_path / "s.db") as (chat.base,):
            chat.talk(turns)
        del chat.messages[-1]
        with proxies(upstream, tmp_path / "s.db") as (chat.base,):
            chat.messages.append(chat.send())
        assert exact.seen[-1][1] == exact.seen[-2][1]
    assert len(chat.conversations) == 1


def test_workers_on_one_store_share_conversations_and_choices(
    exact: Provider, upstream: str, tmp_path: Path, http: httpx2.Client
) -> None:
    chat = Chat("", http)
    with proxies(upstream, tmp_path / "s.db", 2) as bases:
        for n in range(24):
            chat.base = bases[n % 2]
            chat.say(ask(n))
    alternating = went(exact)
    exact.seen.clear()
    steady = Chat("", http)
    with proxies(upstream, tmp_path / "t.db") as (steady.base,):
        steady.talk(range(24))
    assert len(chat.conversations) == 1
    check(list(zip(chat.sent, alternating, strict=True)), "chat", BUDGET)
    store = Sqlite(tmp_path / "s.db")
    (summary,) = store.conversations()
    assert (summary.messages, summary.requests, store.check()) == (48, 24, [])
    store.close()
    assert breaks(alternating) == breaks(went(exact)), "no more evictions than one worker makes"


def live_sessions(base: str, http: httpx2.Client) -> int:
    lines = http.get(f"{base}/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("forgetless_live_sessions ")).split()[1]))


def test_sessions_in_memory_are_bounded_by_number_and_go_on_from_the_store(
    exact: Provider, start: Callable[..., str], http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST", 4)
    base = start()
    chats = [Chat(base, http) for _ in range(9)]
    kept: dict[int, list[bytes]] = {n: [] for n in range(9)}
    for turn in range(8):
        for n, chat in enumerate(chats):
            chat.say(ask(turn, f"topic{n}"))
            kept[n].append(exact.seen[-1][1])
            assert live_sessions(base, http) <= 4
    for n, chat in enumerate(chats):
        assert len(chat.conversations) == 1
        assert 1 <= check(list(zip(chat.sent, kept[n], strict=True)), "chat", BUDGET) <= 3


def test_sessions_in_memory_are_bounded_by_size(
    exact: Provider, start: Callable[..., str], http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST_BYTES", 10_000)
    base = start(budget=10_000)
    for n in range(8):
        Chat(base, http).say({"role": "user", "content": f"{n} " + "x" * 3_000})
    assert live_sessions(base, http) == 3
    huge = Chat(base, http)
    huge.say({"role": "user", "content": "y" * 20_000})
    assert live_sessions(base, http) == 1
    huge.say({"role": "user", "content": "go on"})
    assert len(huge.conversations) == 1


def test_pins_stay_through_evictions_and_restarts(
    exact: Provider, upstream: str, tmp_path: Path, http: httpx2.Client
) -> None:
    chat = Chat("", http)
    with proxies(upstream, tmp_path / "s.db") as (chat.base,):
        chat.talk(range(2))
        chat.headers["x-forgetless-pin"] = "1, 3"
        chat.talk(range(2, 3))
        del chat.headers["x-forgetless-pin"]
        chat.talk(range(3, 8))
    with proxies(upstream, tmp_path / "s.db") as (chat.base,):
        chat.talk(range(8, 14))
    last = exact.bodies[-1]["messages"]
    assert [message for message in last if message in (ask(0), ask(1))] == [ask(0), ask(1)]
    assert ask(2) not in last
    check(list(zip(chat.sent, went(exact), strict=True)), "chat", BUDGET)


def test_a_pin_on_nothing_is_refused(provider: Provider, start: Callable[..., str], http: httpx2.Client) -> None:
    base = start()
    body = {"model": "m", "messages": [SYSTEM, ask(1)]}
    for named in ("x", "1,,2", "99", "0", "-1", "1.5", "²", "1,7"):
        headers = {"x-forgetless-pin": named.encode()}
        said = http.post(f"{base}/v1/chat/completions", json=body, headers=headers)
        assert (said.status_code, said.json()["error"]["code"]) == (400, "bad_pin"), named
    assert provider.seen == []
