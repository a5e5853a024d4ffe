"""What stays at the user's wish: pinned, unpinned and listed, by header and by address, for its caller alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.errors import ConfigError
from forgetless.proxy.pins import keep, merged, named, pin, unpin
from forgetless.stores.inmemory import InMemory
from live import Provider, Said
from sent import count

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
RULE = "From now on, never send a message yourself, only leave drafts."
NAME = "my garden"

every = pytest.mark.parametrize("dialect", PATHS)


class Talk:
    """A conversation through a proxy, with a system prompt and a rule in message 2 (where the prompt is one)."""

    def __init__(self, base: str, http: httpx2.Client, dialect: str = "chat", key: str = "ann") -> None:
        self.base, self.http, self.dialect = base, http, dialect
        self.headers = {"authorization": f"Bearer {key}", "x-forgetless-conversation": NAME}
        self.said: list[dict[str, Any]] = []

    @property
    def rule(self) -> int:
        """Number of the rule's message."""
        return 2 + (self.dialect == "chat")

    def say(self, text: str, **headers: str) -> httpx2.Response:
        self.said.append({"role": "user", "content": text})
        body: dict[str, Any] = {"model": "m", "max_tokens": 50}
        if self.dialect == "anthropic":
            body |= {"system": "Be kind.", "messages": self.said}
        elif self.dialect == "responses":
            body |= {"instructions": "Be kind.", "input": self.said}
        else:
            body["messages"] = [{"role": "system", "content": "Be kind."}, *self.said]
        answer = self.http.post(self.base + PATHS[self.dialect], json=body, headers=self.headers | headers)
        assert answer.status_code == 200, answer.text
        self.said.append({"role": "assistant", "content": f"reply {len(self.said)} " + "marble timber pepper " * 20})
        return answer

    def go_on(self, turns: int = 8) -> None:
        for turn in range(turns):
            self.say(f"Letter {turn}: " + "harbour garden window " * 15)

    def begin(self) -> None:
        self.say("Hello, I manage a garden.")
        self.say(RULE)
        self.go_on()

    def pins(self, method: str = "GET", number: int | None = None, **options: Any) -> httpx2.Response:
        where = f"{self.base}/forgetless/conversations/{NAME.replace(' ', '%20')}/pins"
        where += f"/{number}" if number is not None else ""
        return self.http.request(method, where, headers=self.headers, **options)

    def listed(self) -> dict[int, tuple[bool, list[str]]]:
        found = self.pins().json()["messages"]
        return {one["message"]: (one["pinned"], [told["state"] for told in one["instructions"]]) for one in found}


@pytest.fixture
def exact(provider: Provider) -> Provider:
    """A provider that counts as we do."""
    provider.answer = lambda _, body: Said("a reply " + "marble timber pepper " * 20, tokens=count(body))
    return provider


@every
def test_a_recognised_instruction_is_listed_and_goes_when_the_user_says_so(
    dialect: str, exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    talk = Talk(start(budget=700), http, dialect)
    talk.begin()
    assert RULE in str(exact.bodies[-1])
    assert talk.listed() == {talk.rule: (False, ["instruction"])}
    gone = talk.pins("DELETE", talk.rule)
    assert gone.status_code == 200
    assert gone.json()["messages"][0]["instructions"] == [{"text": RULE, "state": "dropped"}]
    talk.go_on()
    assert RULE not in str(exact.bodies[-1])
    assert talk.pins("POST", json={"message": talk.rule}).status_code == 200
    talk.go_on(1)
    assert RULE in str(exact.bodies[-1])
    assert talk.listed() == {talk.rule: (True, ["instruction"])}


@every
def test_the_same_by_header(dialect: str, exact: Provider, start: Callable[..., str], http: httpx2.Client) -> None:
    talk = Talk(start(budget=700), http, dialect)
    talk.begin()
    talk.say("And now?", **{"x-forgetless-unpin": str(talk.rule), "x-forgetless-pin": f"{talk.rule - 2}"})
    talk.go_on()
    assert RULE not in str(exact.bodies[-1])
    assert "I manage a garden" in str(exact.bodies[-1])
    assert talk.listed() == {talk.rule - 2: (True, []), talk.rule: (False, ["dropped"])}


def test_what_is_dropped_is_not_said_again_beside_the_question(
    exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    talk = Talk(start(budget=700, policy="rea", remind=True), http)
    talk.begin()
    assert RULE in exact.bodies[-1]["messages"][-1]["content"]
    talk.pins("DELETE", talk.rule)
    talk.go_on(1)
    assert RULE not in exact.bodies[-1]["messages"][-1]["content"]


def test_it_holds_through_a_restart(
    exact: Provider, start: Callable[..., str], http: httpx2.Client, tmp_path: Path
) -> None:
    store = str(tmp_path / "s.db")
    talk = Talk(start(budget=700, store=store), http)
    talk.begin()
    talk.pins("DELETE", 3)
    talk.pins("POST", json={"message": 1})
    talk.base = start(budget=700, store=store)
    talk.go_on()
    assert RULE not in str(exact.bodies[-1])
    assert "I manage a garden" in str(exact.bodies[-1])
    assert talk.listed() == {1: (True, []), 3: (False, ["dropped"])}


def test_another_caller_sees_and_changes_nothing(
    exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    talk = Talk(start(budget=700), http)
    talk.begin()
    other = Talk(talk.base, http, key="bob")
    for answer in (other.pins(), other.pins("POST", json={"message": 3}), other.pins("DELETE", 3)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert talk.listed() == {3: (False, ["instruction"])}


def test_what_names_no_message_is_refused_and_changes_nothing(
    exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    talk = Talk(start(budget=700), http)
    talk.begin()
    bodies: list[Any] = [{"message": 99}, {"message": 0}, {"message": "3"}, {"message": True}, {}, [3]]
    for body in bodies:
        answer = talk.pins("POST", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_pin"), body
    assert talk.pins("POST", content=b"{").status_code == 400
    assert talk.pins("POST", content=b" " * 5_000).status_code == 413
    assert talk.pins("DELETE", -1).status_code == 400
    assert talk.listed() == {3: (False, ["instruction"])}


def test_without_contents_pins_are_listed_and_words_are_not(
    exact: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    talk = Talk(start(InMemory(contents=False), budget=700), http)
    talk.begin()
    assert talk.listed() == {}
    talk.pins("POST", json={"message": 1})
    talk.pins("DELETE", 3)
    assert talk.listed() == {1: (True, [])}
    talk.go_on()
    assert "I manage a garden" in str(exact.bodies[-1])
    assert RULE not in str(exact.bodies[-1])


def test_a_store_that_is_away_is_said(exact: Provider, start: Callable[..., str], http: httpx2.Client) -> None:
    store = InMemory()
    talk = Talk(start(store, budget=700), http)
    talk.begin()
    store.close()
    assert (talk.pins().status_code, talk.pins("DELETE", 3).status_code) == (503, 503)


KEYS = [bytes([n]) * 16 for n in range(4)]


@given(st.lists(st.tuples(st.sampled_from([pin, unpin]), st.sampled_from(KEYS)), max_size=8))
def test_the_last_wish_for_a_message_holds(wishes: list[tuple[Callable[[set[bytes], bytes], None], bytes]]) -> None:
    pins: set[bytes] = set()
    last = {}
    for how, key in wishes:
        how(pins, key)
        last[key] = how
    for key in KEYS:
        assert (key in pins) == (last.get(key) is pin)
        assert (key + b"-" in pins) == (last.get(key) is unpin)


sets = st.frozensets(st.sampled_from(KEYS))


@given(sets, sets, sets)
def test_what_another_process_changed_and_what_was_changed_here_both_hold(
    here: frozenset[bytes], kept: frozenset[bytes], stored: frozenset[bytes]
) -> None:
    found = merged(set(here), set(kept), stored)
    for key in KEYS:
        changed = (key in here) != (key in kept)
        assert (key in found) == ((key in here) if changed else (key in stored))


def test_only_what_has_changed_is_written() -> None:
    store = InMemory()
    kept = {KEYS[0], KEYS[1]}
    for key in kept:
        store.pin("ann", "c1", key)
    keep(store, "ann", "c1", {KEYS[1], KEYS[2]}, kept)
    assert store.pins("ann", "c1") == kept == {KEYS[1], KEYS[2]}
    store.close()


def test_headers_count_messages_as_the_request_does() -> None:
    pins: set[bytes] = set()
    named(pins, {"x-forgetless-pin": "1, 2", "x-forgetless-unpin": "3"}, KEYS, 1)
    assert pins == {KEYS[0], KEYS[1], KEYS[2] + b"-"}
    for wrong in ("0", "5", "x", "1,,2"):
        with pytest.raises(ConfigError):
            named(pins, {"x-forgetless-unpin": wrong}, KEYS, 1)
