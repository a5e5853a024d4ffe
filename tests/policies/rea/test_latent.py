"""Latent memory: a reply becomes vectors once, they stand in its place in the dialect chat alone, and nothing else."""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter as Bag
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless import BudgetError, ConfigError, MissingExtra, Session, compact, load_policy
from forgetless.models.embeds import vectors
from forgetless.policies.rea.latent import Memories, Nearest, memories_of
from forgetless.proxy.settings import Settings
from forgetless.registry import calls_model, load_dialect
from forgetless.tokens import PER_MESSAGE, Counter, for_model
from latents import StandIn
from strategies import chat

pytestmark = pytest.mark.torch

REPLIES = [
    "The harbour of Aland has nine piers. The ferry to it leaves at seven from the last of these every day.",
    "A ticket for the ferry costs 45 euros for one and 80 euros for two, and children below the age of six go free.",
    "The weather in the north was cold and wet that day and nothing much happened to anyone that I would know of.",
    "You can rent bicycles behind the church, for ten euros a day, from the first of May to the end of September.",
]
QUESTIONS = ["Where is the harbour?", "What is a ticket?", "How was the weather?", "Are there bicycles?"]
LAST = "When does the ferry leave from the harbour, and what does a ticket for two cost, all in all?"


def talk(turns: int = 4, last: str = LAST) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for asked, said in zip(QUESTIONS[:turns], REPLIES[:turns], strict=True):
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return [*messages, {"role": "user", "content": last}]


def policy(latent: StandIn, **options: Any) -> Any:
    return load_policy("rea", compress=latent, **{"thresholds": (0.0, 1.0), **options})


def held(message: dict[str, Any]) -> Any:
    """The vectors that a message consists of."""
    (part,) = message["content"]
    return vectors(part)


def test_a_reply_stands_as_one_part_of_vectors_with_its_tokens_and_its_reason() -> None:
    latent = StandIn()
    done = compact(talk(), budget=10**6, policy=policy(latent))
    for message, said in zip(done.messages[1::2], REPLIES, strict=True):
        assert set(message) == {"role", "content"}
        assert [(part["type"], set(part)) for part in message["content"]] == [("prompt_embeds", {"type", "data"})]
        assert np.array_equal(held(message), latent.encode([said])[0])
    assert done.messages[::2] == talk()[::2]
    replies = done.ledger[1::2]
    assert {(e.form, e.reason, e.tokens_after) for e in replies} == {("compressed", "latent", 8 + PER_MESSAGE)}
    count = for_model().message
    assert sum(map(count, load_dialect("chat").parse(done.messages).messages)) == done.tokens
    assert done.tokens < compact(talk(), budget=10**6, policy="full").tokens


def test_over_a_whole_conversation_each_reply_is_compressed_once_with_the_question_in_the_same_batch() -> None:
    latent, session = StandIn(), None
    session = Session(budget=10**6, policy=policy(latent), dialect="chat")
    for turns in range(1, 5):
        last = LAST if turns == 4 else QUESTIONS[turns]
        session.prepare(talk(turns, last))
        assert latent.batches[-1] == [REPLIES[turns - 1], last], "what is new, and nothing else"
    assert len(latent.batches) == 4
    session.prepare(talk())
    again = compact(talk(), budget=10**6, policy=policy(latent))
    edited = [{"role": "user", "content": "An earlier message that is new."}, *talk()]
    compact(edited, budget=10**6, policy=policy(latent))
    assert len(latent.batches) == 4, "known, whatever stands before it and whoever asks"
    assert all(count == 1 for text, count in Bag(t for b in latent.batches for t in b).items() if text in REPLIES)
    assert [e.reason for e in again.ledger[1::2]] == ["latent"] * 4


def test_vectors_and_requests_are_the_same_with_and_without_the_cache() -> None:
    kept = policy(StandIn())
    for turns in range(1, 5):
        warm = compact(talk(turns), budget=10**6, policy=kept)
        cold = compact(talk(turns), budget=10**6, policy=policy(StandIn()))
        assert json.dumps(warm.as_dict()) == json.dumps(cold.as_dict())


def test_near_is_the_highest_cosine_of_any_two_vectors() -> None:
    class Given(StandIn):
        def _vectors(self, text: str) -> Any:
            made = np.zeros((8, 32), np.float32)
            if text == "question":
                made[3, 0], made[5, 1] = 2.0, 1.0
            elif text:
                made[7, :2] = {"same": (9, 0), "half": (1, 1), "other": (-1, 0)}[text]
            return made

    near = Nearest(Memories(Given()))
    assert near(["same", "half", "other", ""], "question") == [1.0, 0.71, 0.0, 0.0]


def test_what_is_asked_for_is_nearest_and_three_forms_follow_from_two_thresholds() -> None:
    done = compact(talk(), budget=10**6, policy=policy(StandIn(), thresholds=(0.9, 2.0), replies="paper"))
    scores = [entry.score for entry in done.ledger[1::2]]
    assert all(score is not None and 0 <= score <= 1.01 for score in scores)
    low, high = sorted(scores)[1:3]  # type: ignore[type-var]
    made = policy(StandIn(), thresholds=(low, high), replies="paper")
    forms = {e.score: e.form for e in compact(talk(), budget=10**6, policy=made).ledger[1::2]}
    for score, form in forms.items():
        assert score is not None
        assert form == ("omitted" if score < low else "raw" if score > high else "compressed")
    assert set(forms.values()) >= {"raw", "compressed"} or len(forms) < 4


def test_a_reply_that_calls_a_tool_or_holds_more_than_words_is_never_vectors() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    messages = [
        {"role": "user", "content": "Look it up for me, and tell me what you find there."},
        {"role": "assistant", "content": REPLIES[0], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": REPLIES[1]},
        {"role": "assistant", "content": [{"type": "text", "text": REPLIES[2]}, picture]},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": REPLIES[0], "reasoning_content": "I think that I know it."},
        *talk(),
    ]
    done = compact(messages, budget=10**6, policy=policy(StandIn()))
    assert [e.reason for e in done.ledger][:5] == ["user", "sentences", "similar", "user", "sentences"]
    assert done.messages[1]["tool_calls"] == [call]
    assert isinstance(done.messages[1]["content"], str)
    assert done.messages[2]["tool_call_id"] == "a"
    assert [e.reason for e in done.ledger][5:].count("latent") == 4


def test_a_short_reply_stays_as_it_is() -> None:
    messages = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Yes."}, *talk()]
    done = compact(messages, budget=10**6, policy=policy(StandIn()))
    assert done.messages[1] == messages[1]
    assert (done.ledger[1].form, done.ledger[1].reason) == ("raw", "similar")


def test_instructions_and_pins_stay_in_words() -> None:
    rule = "From now on, answer every question in French."
    messages = [{"role": "system", "content": "Be kind."}, *talk()]
    messages[1] = {"role": "user", "content": rule}
    done = compact(messages, budget=10**6, policy=policy(StandIn()), instructions="rules", pins=[4])
    assert done.messages[0] == messages[0]
    assert rule in done.messages[-1]["content"], "said again beside the question"
    assert done.messages[4] == messages[4]
    assert [e.reason for e in done.ledger].count("latent") == 3


def test_words_that_point_at_a_list_are_found_without_compressing_more() -> None:
    latent = StandIn()
    listed = "1. The inn at the harbour\n2. The inn by the church\n3. The hotel on the hill, with 12 rooms"
    messages = [{"role": "user", "content": "Name hotels."}, {"role": "assistant", "content": listed}, *talk()]
    messages[-1] = {"role": "user", "content": "Tell me more about the second of the hotels, please"}
    done = compact(messages, budget=10**6, policy=policy(latent))
    assert done.messages[1] == messages[1]
    assert {text for batch in latent.batches for text in batch} == {*REPLIES, listed, messages[-1]["content"]}


@pytest.mark.parametrize("near", ["bm25", None])
def test_other_similarities_go_with_it(near: str | None) -> None:
    made = policy(StandIn(), near=near, thresholds=(0.0, 1.0))
    done = compact(talk(), budget=10**6, policy=made)
    assert (made.near.name, [e.reason for e in done.ledger[1::2]]) == (near or "latent", ["latent"] * 4)


def test_no_other_dialect_has_a_way_to_say_it_and_is_refused_before_anything_is_sent() -> None:
    made = policy(StandIn())
    for dialect in ("anthropic", "responses"):
        with pytest.raises(ConfigError, match="prompt embeddings"):
            Session(budget=1_000, policy=made, dialect=dialect)
        with pytest.raises(ConfigError, match=f"{dialect}.*prompt embeddings"):
            compact(talk(), budget=10**6, policy=made, dialect=dialect)
    with pytest.raises(ConfigError, match="'anthropic'"):
        compact({"system": "x", "messages": talk(), "max_tokens": 5}, budget=10**6, policy=made)
    with pytest.raises(ConfigError, match="'anthropic'"):
        Session(budget=10**6, policy=made).prepare({"system": "x", "messages": talk(), "max_tokens": 5})


def test_the_embedded_model_reads_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetless.policies.rea import latent

    stand_in = StandIn()
    monkeypatch.setattr(latent, "load_memories", lambda _: memories_of(stand_in))
    options = {"compress": "latent", "thresholds": [0.1, 0.5]}
    with pytest.raises(ConfigError, match="embedded"):
        Settings(upstream="embedded", policy="rea", options=options, store="memory")
    Settings(upstream="http://127.0.0.1:9/v1", policy="rea", options=options, store="memory")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("forgetless.models.local")]:
        monkeypatch.delitem(sys.modules, name)
    for missing in ("torch", "transformers", "peft"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"forgetless\[(local|train)\]"):
        load_policy("rea", compress="latent", thresholds=[0.1, 0.5])
    with pytest.raises(MissingExtra, match="local"):
        compact(talk(), budget=10**6, policy=policy(StandIn()))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder.*train rea-latent"):
        load_policy("rea", compress=f"latent#{tmp_path / 'none'}")


def test_thresholds_come_with_the_adapters(tmp_path: Path) -> None:
    latent = StandIn()
    latent.folder = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "thresholds.json").write_text(json.dumps({"about": "", "near": {"latent": [0.21, 0.42]}}))
    made = load_policy("rea", compress=latent)
    assert (made.low, made.high) == (0.21, 0.42)
    assert load_policy("rea", compress=latent, thresholds=[0, 1]).high == 1
    with pytest.raises(ConfigError, match="rea-thresholds"):
        load_policy("rea", compress=StandIn())


def test_it_calls_a_model_so_that_a_proxy_lets_others_go_on() -> None:
    assert calls_model("rea", {"compress": "latent"})
    assert calls_model("rea", {"near": "latent#folder"})


@pytest.fixture(scope="module")
def shared() -> Any:
    return policy(StandIn(), thresholds=(0.2, 0.6))


@settings(max_examples=25)
@given(messages=chat(), share=st.floats(0.05, 1.1), data=st.data())
def test_the_promises_of_every_policy_hold(shared: Any, messages: Any, share: float, data: st.DataObject) -> None:
    before = copy.deepcopy(messages)
    pins = data.draw(st.sets(st.integers(0, len(messages) - 1), max_size=1))
    budget = max(1, int(compact(messages, budget=10**9, policy="full", dialect="chat").tokens * share))
    try:
        done = compact(messages, budget=budget, policy=shared, dialect="chat", pins=pins)
    except BudgetError:
        return
    assert messages == before
    recount = sum(map(for_model().message, load_dialect("chat").parse(done.messages).messages))
    assert recount == done.tokens <= budget
    kept = [at for entry in done.ledger if entry.form != "omitted" for at in entry.messages]
    assert sorted(kept) == sorted(set(kept))
    by_place = dict(zip(sorted(kept), done.messages, strict=True))
    for entry in done.ledger:
        stands = [by_place[at] for at in entry.messages if at in by_place]
        if entry.form == "raw":
            assert stands == [messages[at] for at in entry.messages]
        if entry.reason == "latent":
            ((message,), (at,)) = (stands, entry.messages)
            assert (message["role"], len(message["content"])) == ("assistant", 1)
            assert held(message).shape == (8, 32)
            assert not messages[at].get("tool_calls")
            assert entry.tokens_after == 8 + PER_MESSAGE < entry.tokens_before
        assert not (set(entry.messages) & pins) or entry.form == "raw"
    made, asked = json.dumps(done.messages), json.dumps(messages)
    for ident in {call["id"] for m in done.messages for call in m.get("tool_calls") or ()}:
        assert made.count(f'"tool_call_id": "{ident}"') == asked.count(f'"tool_call_id": "{ident}"')


def test_an_exact_counter_counts_rows_too() -> None:
    done = compact(talk(), budget=10**6, policy=policy(StandIn(), counter=Counter(len)), counter=Counter(len))
    assert [e.tokens_after for e in done.ledger[1::2]] == [8 + PER_MESSAGE] * 4
