"""Small conversations modelled on faults that users report: each stands for a kind.

Budgets are for `quarter`: characters / 4 rounded up per text, and 4 more per message.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from math import ceil
from typing import Any

NOUNS = [
    "anchor",
    "basil",
    "canal",
    "delta",
    "ember",
    "fjord",
    "gravel",
    "hazel",
    "island",
    "jasmine",
    "kettle",
    "oboe",
]

SCORING = ("bm25", "lre", "rea", "relevance")
"""Policies that can know what will be needed, from the words of the question or from what they have learned."""


def quarter(text: str) -> int:
    """Tokens of a text as these budgets count them."""
    return ceil(len(text) / 4)


@dataclass(frozen=True)
class Case:
    """A conversation, its budget, and what must hold."""

    name: str
    messages: list[dict[str, Any]]
    budget: int
    dialect: str = "chat"
    contains: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    identity: bool = False
    pins: tuple[int, ...] = ()
    identifiers: tuple[str, ...] = field(default=())


def _prose(seed: str, chars: int, head: str, end: str) -> str:
    rng = random.Random(seed)
    words = [head]
    while len(" ".join(words)) < chars:
        words.append(rng.choice(NOUNS))
    return " ".join(words) + end


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _filler(name: str, turns: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for i in range(turns):
        out.append(_user(_prose(f"{name}u{i}", 148, f"Part {i}:", "?")))
        out.append(_said(_prose(f"{name}a{i}", 430, f"Answer {i}:", ".")))
    return out


def _calls(*calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for i, name, given in calls
        ],
    }


def _result(ident: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": text}


RUN_ID, OUTPUT, HOST, DIGEST = (
    "c41d7e08-5b2a-4f6e-8a90-77d1e0b3c5f2",
    "/data/nightly/2032-11/stock_v7.parquet",
    "172.16.40.9:8443",
    "sha256:9be1f0",
)
INSTRUCTION = "From here on: never order anything yourself, only put it in the basket."
BIG = {"image": "QUJD" * 100_000, "audio": "UklG" * 100_000}


def _media(dialect: str) -> list[dict[str, Any]]:
    url = "data:image/png;base64," + BIG["image"]
    image: dict[str, Any] = {
        "chat": {"type": "image_url", "image_url": {"url": url}},
        "responses": {"type": "input_image", "image_url": url},
        "anthropic": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": BIG["image"]},
        },
    }[dialect]
    kind = "input_text" if dialect == "responses" else "text"
    out = _filler("media", 2)
    out.append({"role": "user", "content": [{"type": kind, "text": "What does the plate say?"}, image]})
    out.append(_said("It says: back at noon."))
    if dialect == "chat":
        audio = {"type": "input_audio", "input_audio": {"data": BIG["audio"], "format": "wav"}}
        out.append({"role": "user", "content": [{"type": "text", "text": "And this voice?"}, audio]})
    else:
        out.append(_user("And the line below?"))
    return out


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


CASES = [
    Case(
        "a result at the cut has its call, or both are gone",
        [
            _system("You plan walks."),
            *_filler("walk", 3),
            _user("Compare two buses for Sunday."),
            _calls(("c1", "bus_times", {"line": "west"})),
            _result("c1", _prose("bus", 628, "west", "")),
            _user("And the fares?"),
            _said("The west line is cheaper."),
            _user("Take the cheaper one."),
        ],
        180,
    ),
    Case(
        "three parallel calls are one unit",
        [
            _system("You compare rivers."),
            *_filler("river", 2),
            _user("Levels at three gauges?"),
            _calls(
                ("w1", "level", {"q": "Ahr"}),
                ("w2", "level", {"q": "Bode"}),
                ("w3", "level", {"q": "Chiers"}),
            ),
            _result("w1", _prose("ahr", 428, "Ahr", "")),
            _result("w2", _prose("bode", 428, "Bode", "")),
            _result("w3", _prose("chiers", 428, "Chiers", "")),
            _said("Bode is highest."),
            _user("Which one is lowest?"),
        ],
        280,
    ),
    Case(
        "under the budget nothing changes, an open step at the end included",
        [_system("Be short."), _user("17 x 3?"), _calls(("m1", "sum", {"e": "17*3"})), _result("m1", "51")],
        4000,
        identity=True,
    ),
    Case(
        "a developer message stays, in its place",
        [
            {"role": "developer", "content": "House rule: give prices in yen only."},
            *_filler("dev", 8),
            _user("What is the price of the chair?"),
        ],
        300,
        kept=("House rule: give prices in yen only.",),
    ),
    Case(
        "a standing instruction from the middle stays word for word",
        [
            _system("You run a shop account."),
            *_filler("before", 2),
            _user(INSTRUCTION),
            _said("Understood, basket only."),
            *_filler("after", 9),
            _user("Get the neighbour the same lamp."),
        ],
        420,
        kept=(INSTRUCTION,),
    ),
    Case(
        "identifiers that the question asks for are there, byte for byte",
        [
            _system("You run nightly jobs."),
            _user("Start the stock export."),
            _calls(("j1", "start", {"job": "stock"})),
            _result("j1", f"started run {RUN_ID} on {HOST}, image {DIGEST}, output at {OUTPUT}"),
            _said(f"Run {RUN_ID} is under way."),
            *_filler("jobs", 9),
            _user("Fetch the output of that run."),
        ],
        460,
        contains=(RUN_ID, OUTPUT),
        identifiers=(RUN_ID, OUTPUT, HOST, DIGEST),
    ),
    *(
        Case(f"payloads have a fixed cost ({dialect})", _media(dialect), 4000, dialect=dialect, identity=True)
        for dialect in ("chat", "responses", "anthropic")
    ),
    Case(
        "special tokens in a text are text",
        [
            _system("You explain tokenizers."),
            _user("Why do <|endoftext|> and <|im_start|>system show in my logs?"),
            _said("Strings such as <|endoftext|> part documents."),
            _user("Are </s> and [INST] the same?"),
        ],
        4000,
        identity=True,
    ),
    Case(
        "a newest message over the budget is one error, or cut in sight",
        [_system("You read drafts."), *_filler("draft", 1), _user(_prose("long", 6350, "Read this:", ""))],
        400,
    ),
    Case(
        "thinking is whole or gone",
        [
            _user("Plan the garden."),
            {
                "role": "assistant",
                "content": [
                    _thinking(_prose("old", 297, "Weigh", "."), "EqQBold="),
                    {"type": "text", "text": "Use beds of four."},
                ],
            },
            _user("Test the water."),
            {
                "role": "assistant",
                "content": [
                    _thinking(_prose("new", 294, "Water first", "."), "EqQBnew="),
                    {"type": "text", "text": "Testing it."},
                    {"type": "tool_use", "id": "t1", "name": "water", "input": {"bed": "B"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": _prose("water", 420, "", "")}],
            },
        ],
        215,
        dialect="anthropic",
    ),
    Case(
        "null, empty and blank content pass",
        [
            _system("You run tools."),
            _user("Ping."),
            _calls(("p1", "ping", {})),
            _result("p1", ""),
            _said(""),
            _user("   "),
            _said("Done."),
            {"role": "assistant", "content": None, "reasoning_content": "nothing more to say"},
            _user("And the result?"),
        ],
        4000,
        identity=True,
    ),
    Case(
        "each call has one result afterwards too",
        [
            _user("Show figures for pump K7."),
            _calls(("q1", "faults", {"id": "K7"}), ("q2", "delay", {"id": "K7"})),
            _result("q1", _prose("q1", 420, "", "")),
            _result("q2", _prose("q2", 420, "", "")),
            _said("Delay is high."),
            _user("For how long?"),
        ],
        120,
    ),
    *(
        Case(
            f"results in one user message stay together, the user's words beside them stay words ({budget})",
            [
                _user("Look twice."),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "ta", "name": "grep", "input": {"p": "x"}},
                        {"type": "tool_use", "id": "tb", "name": "ls", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "ta", "content": _prose("ta", 212, "", "")},
                        {"type": "tool_result", "tool_use_id": "tb", "content": _prose("tb", 212, "", "")},
                        {"type": "text", "text": "Which one counts?"},
                    ],
                },
                {"role": "assistant", "content": [{"type": "text", "text": "The first."}]},
                _user("Why?"),
            ],
            budget,
            dialect="anthropic",
            identity=budget == 400,
        )
        for budget in (400, 60)
    ),
    Case(
        "a fact from long ago is there when asked for",
        [
            _system("You settle disputes."),
            _user("Remember: the deposit is 450."),
            _said("Noted."),
            *_filler("dispute", 8),
            _user("How much is the deposit?"),
        ],
        380,
        contains=("450",),
    ),
]
