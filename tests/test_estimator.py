"""The token estimate: safe on any string, nearly additive, and close to the true tokenizer on every kind of text."""

import json
import random
import uuid
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.estimator import estimate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package opens its data in an old way
    import bpe_openai

TEXTS = Path(__file__).parent / "fixtures" / "texts"
PIECES = 12
SEAM = 5.0  # a cut changes the counts of runs and changes of kind at its two sides, by less than this many tokens

anything = st.text(st.characters(exclude_categories=()))  # lone surrogates included


def identifiers(rng: random.Random) -> str:
    folders = ["src", "lib", "tests", "config", "node_modules", "assets"]
    lines = []
    for _ in range(40):
        lines.append(str(uuid.UUID(int=rng.getrandbits(128), version=4)))
        lines.append("/" + "/".join(rng.choices(folders, k=4)) + f"/module_{rng.randint(1, 99)}.py")
        lines.append(rng.randbytes(20).hex())
    return "\n".join(lines)


def log(rng: random.Random) -> str:
    said = ["connection accepted", "cache miss for key", "request finished", "retrying after timeout"]
    return "\n".join(
        f"2026-03-{rng.randint(10, 28)}T08:{rng.randint(10, 59)}:{rng.randint(10, 59)}.{rng.randint(100, 999)}Z "
        f"{rng.choice(['INFO', 'WARN', 'ERROR'])} worker-{rng.randint(1, 16)} {rng.choice(said)} "
        f"status={rng.choice([200, 404, 503])} elapsed_ms={rng.randint(1, 5000)}"
        for _ in range(60)
    )


def terminal(rng: random.Random) -> str:
    names = ["report", "server", "index", "invoice", "backup", "notes", "summary", "client"]
    listing = [
        f"-rw-r--r--  1 deploy deploy {rng.randint(100, 999999):>8} Mar {rng.randint(10, 28)} "
        f"{rng.randint(10, 23)}:{rng.randint(10, 59)} {rng.choice(names)}_{rng.randint(1, 40)}.txt"
        for _ in range(30)
    ]
    tests = [f"tests/test_{rng.choice(names)}.py::test_case_{n} PASSED    [{n * 3:>3}%]" for n in range(33)]
    return "\n".join(["$ ls -la reports", *listing, "$ pytest -v", *tests])


def records(rng: random.Random) -> list[dict[str, object]]:
    words = ["garden", "invoice", "shipment", "customer", "pending", "delivered", "blue", "express"]
    return [
        {
            "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            "created_at": f"2026-03-{rng.randint(10, 28)}T12:30:00Z",
            "status": rng.choice(words),
            "amount": rng.randint(100, 99999) / 100,
            "tags": rng.sample(words, 3),
            "note": f"The {rng.choice(words)} order was {rng.choice(words)} on time.",
            "parent": None,
        }
        for _ in range(16)
    ]


def tool_call(rng: random.Random) -> dict[str, object]:
    path = f"src/{rng.choice(['app', 'server', 'models'])}/{rng.choice(['views', 'routes', 'orders'])}.py"
    code = (TEXTS / "code.txt").read_text("utf-8")
    at = rng.randrange(len(code) - 400)
    name, arguments = rng.choice(
        [
            ("read_file", {"path": path, "start_line": rng.randint(1, 400), "limit": 200}),
            ("run_command", {"command": f"python -m pytest {path} -x --tb=short", "timeout": 120}),
            ("write_file", {"path": path, "content": code[at : at + 400]}),
            ("search", {"query": "where are orders validated before they are saved", "max_results": 10}),
        ]
    )
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{rng.randbytes(12).hex()}", "type": "function", "function": function}


def text_of(name: str) -> str:
    generated = {
        "identifiers": identifiers,
        "log": log,
        "terminal": terminal,
        "json_pretty": lambda rng: json.dumps(records(rng), indent=2),
        "json_compact": lambda rng: json.dumps(records(rng), separators=(",", ":")),
        "tool_calls": lambda rng: json.dumps([tool_call(rng) for _ in range(24)]),
    }
    if name in generated:
        return generated[name](random.Random(7))
    return (TEXTS / f"{name}.txt").read_text("utf-8")


CLASSES = [
    *("identifiers", "log", "terminal", "json_pretty", "json_compact", "tool_calls"),
    *sorted(path.stem for path in TEXTS.glob("*.txt")),
]


@pytest.mark.parametrize("name", CLASSES)
def test_estimate_is_close_to_the_true_count(name: str):
    text = text_of(name)
    count = bpe_openai.get_encoding("o200k_base").encode_ordinary
    size = -(-len(text) // PIECES)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    true = np.array([len(count(piece)) for piece in pieces])
    assert len(pieces) == PIECES
    assert true.min() >= 50
    estimates = np.array([estimate(piece) for piece in pieces])
    error = np.abs(estimates / true - 1)
    assert np.median(error) <= 0.10
    assert np.percentile(error, 95) <= 0.25
    assert estimates.sum() >= 0.95 * true.sum()


@given(anything)
def test_any_string_has_an_estimate(text: str):
    tokens = estimate(text)
    assert tokens >= 0
    assert tokens == estimate(text)


@given(anything, anything)
def test_joining_texts_costs_no_more_than_the_seam(first: str, second: str):
    assert estimate(first + second) <= estimate(first) + estimate(second) + SEAM


def test_the_empty_string_is_free_and_special_tokens_are_text():
    assert estimate("") == 0
    assert estimate("<|endoftext|>") > 2
    assert estimate("a\ud800b") >= 0


@pytest.mark.parametrize("sample", ["all work and no play. ", "预算之内的对话。", "🎉 "])
def test_long_texts_are_estimated_like_short_ones(sample: str):
    once = estimate(sample * 100)
    assert estimate(sample * 10_000) == pytest.approx(100 * once, rel=0.02)
