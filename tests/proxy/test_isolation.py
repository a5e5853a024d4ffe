"""Two callers, one proxy: whatever one tries, nothing of the other comes back; and no credential stays anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forgetless.proxy.incoming import caller_of
from forgetless.proxy.logs import Lines
from forgetless.stores.inmemory import InMemory
from live import Provider, Said
from sent import count

ANN = {"authorization": "Bearer sk-ann-0123456789"}
BOB = {"authorization": "Bearer sk-bob-0123456789"}
PATH = "/v1/chat/completions"


def history(turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for n in range(turns):
        said.append({"role": "user", "content": f"question {n} " + "word " * 40})
        said.append({"role": "assistant", "content": f"ok {n}"})
    return said[:-1]


def ask(http: httpx2.Client, base: str, headers: dict[str, Any], turns: int, **more: Any) -> httpx2.Response:
    answer = http.post(base + PATH, json={"model": "m", "messages": history(turns), **more}, headers=headers)
    assert answer.status_code == 200
    return answer


@pytest.fixture
def same(provider: Provider) -> Provider:
    """A provider that gives the same answer to the same question, so that both callers have the same histories."""

    def script(_: str, body: Any) -> Said:
        users = [m for m in body["messages"] if m["role"] == "user"]
        return Said(f"ok {users[-1]['content'].split()[1]}", tokens=count(body))

    provider.answer = script
    return provider


def test_the_same_history_of_two_callers_is_two_conversations(
    same: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(store)
    for turns in range(1, 13):
        for who in (ANN, BOB):
            ask(http, base, who, turns)
    found = store.conversations()
    assert len({summary.caller for summary in found}) == len({s.conversation for s in found}) == len(found) == 2
    assert [(s.messages, s.requests) for s in found] == [(24, 12), (24, 12)]
    assert store.check() == []


def test_a_ledger_is_for_its_caller_alone(same: Provider, start: Callable[..., str], http: httpx2.Client) -> None:
    base = start()
    told = [ask(http, base, ANN, turns).headers for turns in range(1, 8)]
    ids = [one["x-forgetless-request-id"] for one in told]
    tries: list[dict[str, Any]] = [
        {},
        BOB,
        {"authorization": "Bearer sk-ann-0123456788"},
        {"authorization": "bearer"},
        {"authorization": ""},
        {"x-api-key": "sk-bob-0123456789"},
        {**BOB, "x-api-key": "sk-ann-0123456789"},
        {**ANN, "x-api-key": "sk-bob-0123456789"},
        {**BOB, "x-forgetless-caller": "x"},
        {**BOB, "x-forgetless-conversation": told[0]["x-forgetless-conversation"]},
        {"cookie": "authorization=Bearer sk-ann-0123456789"},
    ]
    for headers in tries:
        for ident in (*ids, ids[0].upper(), "%", f"{ids[0]}%00", "fr_%25", f"' OR id='{ids[0]}", f"{ids[0]}' --"):
            answer = http.get(f"{base}/forgetless/requests/{ident}", headers=headers)
            assert answer.status_code == 404, (headers, ident)
            assert "word" not in answer.text
    for ident in ids:
        assert http.get(f"{base}/forgetless/requests/{ident}", headers=ANN).json()["id"] == ident
        assert http.get(f"{base}/forgetless/requests/{ident}", params={"key": "x"}, headers=BOB).status_code == 404
    unknown, foreign = (
        http.get(f"{base}/forgetless/requests/{ident}", headers=BOB) for ident in ("fr_" + "0" * 24, ids[0])
    )
    assert unknown.content == foreign.content, "not even whether it exists can be seen"


def test_the_same_name_is_a_conversation_of_each_caller(
    same: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(store)
    named = {"x-forgetless-conversation": "support"}
    first = ask(http, base, {**ANN, **named}, 8)
    assert ask(http, base, {**ANN, **named}, 9).headers["x-forgetless-tokens-reused"] != "0"
    other = ask(http, base, {**BOB, **named}, 9)
    assert other.headers["x-forgetless-tokens-reused"] == "0", "nothing of another's session is gone on with"
    assert first.headers["x-forgetless-conversation"] == other.headers["x-forgetless-conversation"] == "support"
    found = {summary.caller: summary for summary in store.conversations()}
    assert sorted((s.conversation, s.requests) for s in found.values()) == [("support", 1), ("support", 2)]


def test_the_id_of_anothers_conversation_opens_nothing(
    same: Provider, store: InMemory, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(store)
    taken = ask(http, base, ANN, 8).headers["x-forgetless-conversation"]
    ask(http, base, {**BOB, "x-forgetless-conversation": taken}, 9)
    (ann,) = [s for s in store.conversations() if s.requests and s.messages == 16]
    (bob,) = [s for s in store.conversations() if s.messages == 18]
    assert ann.caller != bob.caller
    assert [len(list(store.branches(s.caller, taken))) for s in (ann, bob)] == [1, 1]


def test_pins_and_choices_of_one_do_not_move_the_others(
    same: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    alone = start()
    for turns in range(1, 13):
        ask(http, alone, BOB, turns)
    wanted = [data for _, data, _ in same.seen]
    same.seen.clear()
    base = start()
    for turns in range(1, 13):
        ask(http, base, {**ANN, "x-forgetless-pin": "0,2"} if turns == 2 else ANN, turns)
        ask(http, base, BOB, turns)
    assert [data for _, data, _ in same.seen[1::2]] == wanted
    assert history(1)[0] in json.loads(same.seen[-2][1])["messages"]
    assert history(1)[0] not in json.loads(same.seen[-1][1])["messages"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            [("authorization", "Bearer shared"), ("x-api-key", "a")],
            [("authorization", "Bearer shared"), ("x-api-key", "b")],
        ),
        (
            [("authorization", "Bearer a"), ("authorization", "Bearer z")],
            [("authorization", "Bearer b"), ("authorization", "Bearer z")],
        ),
        ([("api-key", "a")], [("api-key", "b")]),
        ([("x-goog-api-key", "a")], [("x-goog-api-key", "b")]),
        ([("authorization", "Bearer a")], []),
        ([("authorization", "Basic a")], [("authorization", "Bearer a")]),
        ([("authorization", "Bearer a b")], [("authorization", "Bearer a"), ("x-api-key", "b")]),
        ([("authorization", "Bearer A")], [("authorization", "Bearer a")]),
    ],
)
def test_other_credentials_are_another_caller(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert caller_of(one, b"s" * 16) != caller_of(other, b"s" * 16)


def test_a_key_is_the_same_caller_in_whatever_header_and_another_in_another_store() -> None:
    ways = [("authorization", "Bearer k"), ("Authorization", "bearer  k"), ("x-api-key", "k"), ("api-key", "k")]
    assert len({caller_of([way], b"s" * 16) for way in ways}) == 1
    assert caller_of([ways[0]], b"s" * 16) != caller_of([ways[0]], b"t" * 16)


@pytest.mark.parametrize("contents", [True, False])
def test_credentials_stay_nowhere(
    contents: bool, provider: Provider, start: Callable[..., str], http: httpx2.Client, tmp_path: Path
) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith(("forgetless", "uvicorn")):
                lines.append(Lines().format(record) + repr(vars(record)))

    keys = [f"secret{n}-1f2e3d4c5b6a" for n in range(6)]
    log = logging.getLogger()
    handler, level = Keep(), log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    replies: list[str] = []
    provider.answer = lambda path, body: (500, {"error": {"message": "no"}}) if body.get("model") == "broken" else None
    try:
        base = start(store=str(tmp_path / "s.db"), contents=contents, budget=100, strict=True)
        for key, header in zip(keys, ["authorization", "x-api-key", "api-key", "authorization"], strict=False):
            headers = {header: f"Bearer {key}" if header == "authorization" else key, "cookie": f"session={keys[4]}"}
            for body in (
                {"model": "m", "messages": history(1)},
                {"model": "m", "messages": history(4)},
                {"model": "m", "messages": [{"role": "user", "content": "w " * 400}]},
                {"model": "broken", "messages": history(1)},
                {"model": "m", "messages": 7},
            ):
                answer = http.post(base + PATH, json=body, headers=headers, params={"key": keys[5]})
                replies += [answer.text, str(answer.headers)]
            for path in ("/v1/models", "/v1/files/..%2f", "/forgetless/requests/none"):
                answer = http.get(base + path, headers=headers, params={"key": keys[5]})
                replies += [answer.text if "requests" in path else "", str(answer.headers)]
        replies.append(http.get(f"{base}/metrics").text)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert len(lines) > 10, "something was logged"
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(kept) > 4096
    assert (b"question 0" in kept) is contents
    assert not any("word word" in line for line in lines)
    for key in keys:
        assert key.encode() not in kept
        assert not any(key in text for text in (*replies, *lines))
    assert any(key in str(headers) for key in keys for _, _, headers in provider.seen), "the provider has them all"
