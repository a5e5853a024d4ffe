"""`forgetless bench replay` end to end, on a run small enough to work out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.agent_plots import ccm_plot
from forgetless.benchmarks.peers import Reply
from forgetless.benchmarks.plots import replay_plot
from forgetless.benchmarks.prices import PRICES
from forgetless.benchmarks.tasks import replay as module
from forgetless.benchmarks.tasks.replay import EVERY_TURN, LANGCHAIN, Cell, Sent, replay
from forgetless.cli.main import app
from forgetless.datasets.trajectories import Recording
from forgetless.errors import ConfigError, MissingExtra
from forgetless.registry import policy_names
from forgetless.tokens import Counter

WORDS = Counter(lambda text: len(text.split()))


def step(number: int, screen: str = "nothing") -> dict[str, Any]:
    """8 tokens of reply and 5 of result."""
    return {
        "source": "agent",
        "message": "go",
        "tool_calls": [{"tool_call_id": f"c{number}", "function_name": "sh", "arguments": {"cmd": f"ls{number}"}}],
        "observation": {"results": [{"content": screen}]},
    }


def recorded(task: str = "t", steps: int = 4) -> str:
    """A task of 6 tokens, so that the calls have 6, 19, 32 and 45 tokens before them."""
    trail = [{"source": "user", "message": "Fix /a/one.txt"}, *map(step, range(steps))]
    trajectory = {"schema_version": "ATIF-v1.6", "steps": trail}
    return json.dumps({"task": task, "trial": f"{steps}", "reward": 1, "trajectory": trajectory})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_counter", lambda: WORDS)
    monkeypatch.setattr(module, "draw", lambda plot, summary, path: None)
    file = tmp_path / "runs.jsonl"
    file.write_text(recorded() + "\n", encoding="utf-8")
    return file


def run(data: Path, out: Path, **options: Any) -> dict[str, Any]:
    replay(data=data, out=out, **{"peers": False, **options})
    result: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return result


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def rows(summary: Mapping[str, Any]) -> dict[tuple[str, int | None], dict[str, Any]]:
    return {(row["policy"], row["budget"]): row for row in summary["rows"]}


def test_figures_as_worked_out_by_hand(data: Path, tmp_path: Path) -> None:
    summary = run(data, tmp_path, budgets=(18, 40, 99))
    assert (summary["runs"], summary["calls"]) == (1, 4)
    assert summary["pressed"] == {
        "18": {"runs": 1, "calls": 3},
        "40": {"runs": 1, "calls": 1},
        "99": {"runs": 0, "calls": 0},
    }
    found = {(row["policy"], row["budget"]): row for row in records(tmp_path)}
    assert found["full", None]["tokens"] == [6, 19, 32, 45]
    assert found["full", None]["prefix"] == [0, 6, 19, 32]
    assert found["full", None]["output"] == [8, 8, 8, 8]
    fifo = found["fifo", 40]  # 19 must stay; of the other 21 the low mark leaves 12, too few for a step
    assert (fifo["tokens"], fifo["prefix"]) == ([6, 19, 32, 19], [0, 6, 19, 6])
    assert (fifo["evictions"], fifo["rewrites"], fifo["over"]) == (1, 1, 0)
    tight = found["fifo", 18]  # what must stay is over it from the second call on, and goes out as it is
    assert (tight["tokens"], tight["prefix"]) == ([6, 19, 19, 19], [0, 6, 6, 6])
    assert (tight["evictions"], tight["rewrites"], tight["over"]) == (0, 2, 3)
    assert found[EVERY_TURN, 40]["tokens"] == [6, 19, 32, 32]
    assert found[EVERY_TURN, 40]["evictions"] is None

    table = rows(summary)
    assert table["full", None]["prefix_share"] == round(57 / 102, 4)
    assert (table["fifo", 40]["input"], table["fifo", 40]["input_total"], table["fifo", 40]["peak"]) == (76, 76, 32)
    assert table["fifo", 40]["prefix_share"] == round(31 / 76, 4)
    cents = 100 * (76 * 3 + 32 * 15) / 1e6  # too short for any cache
    assert table["fifo", 40]["cached"] == table["fifo", 40]["uncached"] == pytest.approx(cents, abs=1e-4)
    assert table["fifo", 40]["cached_to_full"] == round((76 * 3 + 32 * 15) / (102 * 3 + 32 * 15), 4)
    for name in set(policy_names()) - {"full", "rea"}:  # which is eager
        assert table[name, 99]["input"] == 102
        assert table[name, 99]["rewrites"] == 0


def test_a_high_low_mark_keeps_more_and_evicts_more_often(data: Path, tmp_path: Path) -> None:
    data.write_text(recorded(steps=12))
    summary = run(data, tmp_path, budgets=(60,), lows=(0.1, 0.9))
    assert [(row["policy"], row["low"], row["budget"]) for row in summary["lows"]] == [
        ("lre", 0.1, 60),
        ("lre", 0.9, 60),
    ]
    below, above = summary["lows"]
    assert below["input"] < above["input"]
    assert below["evictions"] < above["evictions"]
    assert below["prefix_share"] > above["prefix_share"]


class FakePeers:
    """`langchain-trim` finds nothing that fits or fails; the other keeps the newest, an orphan where it is a result."""

    def __enter__(self) -> FakePeers:
        self.calls = 0
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, name: str, messages: Sequence[Mapping[str, Any]], budget: int) -> Reply:
        self.calls += 1
        if name.endswith("defaults"):
            return Reply([dict(message) for message in messages[-1:]])
        return Reply(None, "ValueError: no") if self.calls % 2 else Reply([])


def test_what_a_provider_would_refuse_of_the_peers_is_counted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Peers", FakePeers)
    table = rows(run(data, tmp_path, budgets=(20,), peers=True))
    recommended, defaults = (table[name, 20] for name in LANGCHAIN)
    assert (recommended["refused"], recommended["input"], recommended["prefix_share"]) == (4, 0, 0)
    assert (defaults["refused"], defaults["input"], defaults["rewrites"]) == (3, 6 + 3 * 5, 3)
    assert defaults["evictions"] is None
    assert all(row["refused"] == 0 for (name, _), row in table.items() if name not in LANGCHAIN)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=12),
    st.integers(10, 120),
    st.sampled_from([0.2, 0.6, 1.0]),
)
def test_what_our_policies_send_holds_together(sizes: list[tuple[int, int]], budget: int, low: float) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "do it"}]
    for number, (said, shown) in enumerate(sizes):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "sh", "arguments": f'{{"at": {number}}}'}}
        messages.append({"role": "assistant", "content": "word " * said, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " * shown})
    measured = module._Measured(Recording("t", "1", 0.0, tuple(messages)), WORDS)
    named = [measured.under(name, budget, low) for name in policy_names() if name != "full"]
    for cell in [*named, *measured.cells([budget], None)]:
        assert len(cell.requests) == len(sizes)
        assert cell.overstated == cell.understated == cell.refused == 0
        assert 0 <= cell.share < 1
        before = 0
        for request in cell.requests:
            assert request.prefix <= min(before, request.tokens)
            before = request.tokens
        if budget >= measured.counter.text("do it") + 4 + 2 * 4 + 9 + 1 + 2 + 30:  # more than must ever stay
            assert cell.peak <= budget or cell.policy == "full"
        if cell.evictions is not None and not cell.over:
            assert cell.rewrites <= cell.evictions


def test_a_library_that_claims_too_much_is_found_out() -> None:
    messages = ({"role": "user", "content": "a b"}, *({"role": "assistant", "content": "c"},) * 3)
    measured = module._Measured(Recording("t", "1", 0.0, messages), WORDS)

    def claims(tokens: int, reused: int) -> Cell:
        sizes = {1: 6, 2: 11, 3: 16}
        return measured._cell(
            "x", None, lambda history: Sent(history, sizes[len(history)] + tokens, (len(history) > 1) * reused)
        )

    assert (claims(1, 6).overstated, claims(0, 12).overstated, claims(0, 6).overstated) == (3, 2, 0)
    assert (claims(0, 12).understated, claims(0, 6).understated, claims(0, 0).understated) == (0, 1, 2)


def test_what_is_written(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    given = ["--data", str(data), "--out", str(out), "--budgets", "40", "60", "--lows", "0.5", "--no-peers", "--json"]
    app(["bench", "replay", *given], result_action="return_value")
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert "replay@2" in printed.err
    config = json.loads((out / "config.json").read_text())
    assert (config["data"], config["budgets"], config["lows"], config["peers"]) == ("runs.jsonl", [40, 60], [0.5], [])
    assert str(tmp_path) not in (out / "config.json").read_text()
    assert {price["model"] for price in config["prices"]} == set(summary["rows"][0]["cents"])
    assert [price.model for price in PRICES] == list(summary["rows"][0]["cents"])
    # `full` once; the default also anew each turn; lows; memories
    assert len(records(out)) == 1 + 2 * len(policy_names()) + 2 + 3


def test_the_plot(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    replay_plot(run(data, tmp_path, budgets=(30, 40)), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(summary: object, path: Path) -> None:
        raise MissingExtra("plots", "matplotlib")

    monkeypatch.setattr("forgetless.benchmarks.tasks.replay.replay_plot", missing)
    (tmp_path / "runs.jsonl").write_text(recorded())
    assert run(tmp_path / "runs.jsonl", tmp_path / "out")["runs"] == 1
    assert "no plot" in capsys.readouterr().err


def test_the_same_twice(data: Path, tmp_path: Path) -> None:
    data.write_text("\n".join([recorded("a", 3), recorded("b", 6), recorded("b", 9)]))
    one, two = (run(data, tmp_path / name, budgets=(40,)) for name in "ab")
    assert one == two
    assert (one["tasks"], one["runs"]) == (2, 3)
    assert records(tmp_path / "a") == records(tmp_path / "b")


def test_a_run_without_a_model_call_counts_for_nothing(data: Path, tmp_path: Path) -> None:
    data.write_text(recorded("a", 0) + "\n" + recorded("b", 2))
    assert run(data, tmp_path / "out", lows=(0.5,))["runs"] == 1
    data.write_text(recorded("a", 0))
    with pytest.raises(ConfigError, match="no run with a model call"):
        run(data, tmp_path / "out")


def test_a_memory_beside_the_full_history(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.write_text(recorded("a", 4) + "\n" + recorded("b", 12))
    summary = run(data, tmp_path, memories=(0, 3))
    found = {row["memory"]: row for row in summary["ccm"]["rows"]}
    told = summary["ccm"]["shape"]["told"]
    assert summary["ccm"]["shape"] == {"static": 6, "action": 8, "observation": 5, "told": told}
    assert found[0]["input_total"] == 2 * 6 + 14 * (6 + 5) + 16 * told
    assert found[3]["input_total"] == found[0]["input_total"] + 14 * 3
    assert found[3]["peak"] == 6 + 3 + 5 + told
    assert found[0]["refused"] == found[0]["overstated"] == 0
    full = 4 * 6 + 13 * 6 + 12 * 6 + 13 * 66
    groups = {(row["memory"], row["least"], row["most"]): row for row in summary["ccm"]["by_length"]}
    assert groups[0, 1, None]["input_to_full_bare"] == pytest.approx((2 * 6 + 14 * 11) / full, abs=1e-4)
    assert {(row["memory"], row["emitted"]) for row in summary["ccm"]["break_even"]} == {(0, 0), (3, 3)}
    of_memory = [record for record in records(tmp_path) if record["policy"] == "ccm"]
    assert [(record["memory"], len(record["tokens"])) for record in of_memory] == [(0, 4), (3, 4), (0, 12), (3, 12)]
    assert "calls from which on" in capsys.readouterr().out
    assert run(data, tmp_path, memories=())["ccm"]["rows"] == []
    pytest.importorskip("matplotlib")
    ccm_plot(summary, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "options", [{"budgets": ()}, {"budgets": (0,)}, {"lows": (0.0,)}, {"lows": (1.2,)}, {"memories": (-1,)}]
)
def test_faulty_options_are_refused_before_the_work(data: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"above 0|at least 0"):
        run(data, tmp_path / "out", **options)
    with pytest.raises(ConfigError, match="cannot read"):
        run(tmp_path / "none.jsonl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
