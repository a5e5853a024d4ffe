"""`forgetless bench latent`, and latent memory in the other benchmarks, with a model that has no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import made_talks
from forgetless.benchmarks.forms import Scene, form
from forgetless.benchmarks.tasks import adherence, latent, retention
from forgetless.datasets.dialogues import read_dialogues
from forgetless.errors import ConfigError
from forgetless.policies.rea import latent as memories
from latents import StandIn

pytestmark = pytest.mark.torch

REPLY = "The inn number {n} at the harbour has twelve rooms. A night in one of them costs {n} crowns, with breakfast."


class Reader(StandIn):
    """Counts the words and vectors that it is shown, and finds a reply the more surprising the fewer words it saw."""

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        words, vectors = seen(body["messages"])
        return {**super().__call__(body), "usage": {"prompt_tokens": words + self.slots * vectors}}

    def loss(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[float, int]:
        words, vectors = seen(messages)
        tokens = len(reply.split())
        return tokens * (10 - words / 100 - vectors / 100), tokens


def seen(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    contents = [message["content"] for message in messages]
    words = sum(len(content.split()) for content in contents if isinstance(content, str))
    return words, sum(len(content) for content in contents if not isinstance(content, str))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    found = Reader()
    found.folder = tmp_path_factory.mktemp("adapters")  # type: ignore[attr-defined]
    (found.folder / "thresholds.json").write_text('{"near": {"latent": [0.2, 0.6]}}')  # type: ignore[attr-defined]
    monkeypatch.setattr(latent, "_trim", lambda: None)  # what memory is taken, is not what these tests ask
    monkeypatch.setattr(latent, "load_latent", lambda _: found)
    monkeypatch.setattr(adherence, "load_model", lambda *_, **__: found)
    monkeypatch.setattr(memories, "load_memories", lambda _: memories.memories_of(found))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "mt_eval"
    folder.mkdir()
    turns = [[{"user": f"Talk {k}: what of inn {n}?", "sys": REPLY.format(n=n)} for n in range(4)] for k in range(99)]
    rows = [{"id": str(k), "conv": conv} for k, conv in enumerate(turns)]
    (folder / "talks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def test_every_turn_is_measured_on_held_out_dialogues_and_vectors_are_the_shortest(
    data: Path, model: Reader, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    latent.latent(data=data, out=out, dialogues=2, turns=4)
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    held = {dialogue.group for dialogue in read_dialogues(data) if dialogue.held_out}
    assert {record["dialogue"] for record in records} <= held
    assert len(records) == 6 * 2 * 3
    rows = {row["policy"]: row for row in json.loads((out / "summary.json").read_text())["rows"]}
    assert set(rows) == {"vanilla", "rea", "em", "rea, latent", "em, latent", "abandon"}
    for row in rows.values():
        assert row["by_turn"]["turn"] == [2, 3, 4]
        assert row["nats_low"] <= row["nats"] <= row["nats_high"]
    last = {name: row["by_turn"]["prompt_tokens"][-1] for name, row in rows.items()}
    assert last["em, latent"] < last["em"] < last["vanilla"]
    assert rows["vanilla"]["nats"] < rows["em, latent"]["nats"]
    texts = sorted(text for batch in model.batches for text in batch if text.startswith("The inn"))
    assert texts == sorted(2 * [REPLY.format(n=n) for n in range(3)]), "each reply once for each form"
    assert (out / "turns.png").stat().st_size > 10_000
    assert "mt_eval" in (out / "config.json").read_text()
    assert str(tmp_path) not in (out / "config.json").read_text()


def test_a_broken_run_goes_on_to_the_same_records(data: Path, model: Reader, tmp_path: Path) -> None:
    out = tmp_path / "out"
    latent.latent(data=data, out=out, dialogues=2, turns=3, policy=("vanilla", "em, latent"))
    timed = ("prompt_ms", "first_token_ms", "peak_mib", "added_mib")

    def read() -> list[dict[str, Any]]:
        lines = map(json.loads, (out / "records.jsonl").read_text().splitlines())
        return [{key: value for key, value in line.items() if key not in timed} for line in lines]

    whole, kept = read(), (out / "records.jsonl").read_text().splitlines()
    (out / "records.jsonl").write_text("\n".join(kept[:5]) + '\n{"pol')
    latent.latent(data=data, out=out, dialogues=2, turns=3, policy=("vanilla", "em, latent"))
    assert read() == whole
    assert (out / "records.jsonl").read_text().splitlines()[:5] == kept[:5], "not measured again"
    (model.folder / "memory.safetensors").write_bytes(b"others")  # type: ignore[attr-defined]
    (out / "records.jsonl").write_text("\n".join(['{"policy": "of the adapters before"}', ""]))
    latent.latent(data=data, out=out, dialogues=2, turns=3, policy=("vanilla", "em, latent"))
    assert read() == whole, "other adapters are measured anew"


def test_without_held_out_dialogues_it_says_so(model: Reader, tmp_path: Path) -> None:
    turns = [{"user": "Hello there", "sys": "Good day to you"}] * 2
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "1", "conv": turns}) + "\n")
    (only,) = read_dialogues(tmp_path)
    assert not only.held_out, "choose other words"
    with pytest.raises(ConfigError, match="holds out"):
        latent.latent(data=tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="turns"):
        latent.latent(data=tmp_path, out=tmp_path / "out", turns=1)


def test_adherence_plays_it_with_a_model_that_reads_vectors(model: Reader, tmp_path: Path) -> None:
    first = {"user": "Answer without commas.", "sys": "ok.", "id": "instruction", "do_inference": False}
    asked = [{"user": f"What is harbour {n}?", "sys": "", "id": str(n), "do_inference": True} for n in range(4)]
    row = {"id": "1", "inst_name": "punctuation:no_comma", "inst_args": {}, "conv": [first, *asked]}
    file = tmp_path / "recollection_multi_global-inst.jsonl"
    file.write_text(json.dumps(row) + "\n")
    out = tmp_path / "out"
    adherence.adherence(data=file, model="latent", policy=("vanilla", "rea, latent", "em, latent"), out=out)
    rows = {row["policy"]: row for row in json.loads((out / "summary.json").read_text())["rows"]}
    assert {name: row["turns"] for name, row in rows.items()} == {"vanilla": 4, "rea, latent": 4, "em, latent": 4}
    assert all(0 < row["prefix_share"] < 1 for row in rows.values())


def test_a_server_answers_with_vectors_of_the_adapters_that_ship(model: Reader) -> None:
    class Server:
        name, window = "served", None

    shown = form("em, latent", Scene(Server(), (), 1))  # type: ignore[arg-type]
    said = [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": REPLY * 2}]
    assert isinstance(shown([*said, {"role": "user", "content": "And?"}])[1]["content"], list)


def test_retention_has_a_row_for_it(model: Reader, tmp_path: Path) -> None:
    (model.folder / "thresholds.json").write_text('{"near": {"latent": [0.0, 1.0]}}')  # type: ignore[attr-defined]
    (tmp_path / "locomo").mkdir()
    (tmp_path / "locomo" / "talks.json").write_text(json.dumps([made_talks.locomo(1)]))
    out = tmp_path / "out"
    retention.retention(
        data=tmp_path, dataset="locomo", policies=("rea, latent#folder",), dialogue_budgets=(60,), out=out
    )
    rows = json.loads((out / "summary.json").read_text())["dialogue"]["rows"]
    assert "rea, latent" in {row["policy"] for row in rows}
    assert "folder" not in (out / "config.json").read_text() + (out / "summary.json").read_text()
