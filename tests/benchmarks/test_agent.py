"""`forgetless bench agent` end to end, on episodes short enough to play many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forgetless.benchmarks.agent_plots import agent_plot
from forgetless.benchmarks.agent_rows import Cell
from forgetless.benchmarks.prices import PRICES, Request, cost
from forgetless.benchmarks.solvers import scripted
from forgetless.benchmarks.tasks import agent as module
from forgetless.benchmarks.tasks.agent import agent
from forgetless.cli.main import app
from forgetless.dialects.atif import messages_from_atif
from forgetless.errors import ConfigError, ModelError
from forgetless.tokens import for_model
from live import Provider, serving

EASY = ("codes=2", "pages=8", "distance=2", "words=20")
POLICIES = ("full", "fifo", "lre", "relevance-every-turn", "ccm")


@pytest.fixture(autouse=True)
def _no_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw", lambda plot, summary, path: None)


def run(out: Path, **options: Any) -> dict[str, Any]:
    agent(**{"out": out, "option": EASY, "policy": POLICIES, "budgets": (400, 700), "episodes": 2, **options})
    result: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return result


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def untimed(value: Any) -> Any:
    """The same without what a clock said."""
    if isinstance(value, dict):
        return {key: untimed(inner) for key, inner in value.items() if key != "seconds"}
    return [untimed(inner) for inner in value] if isinstance(value, list) else value


def test_what_is_measured(tmp_path: Path) -> None:
    summary = run(tmp_path)
    table = {(row["policy"], row["budget"]): row for row in summary["rows"]}
    assert set(table) == {("full", None), *((name, budget) for name in POLICIES[1:] for budget in (400, 700))}
    full, ccm = table["full", None], table["ccm", 700]
    assert (full["success"], full["solved"], full["ended"]) == (1, 1, {"done": 2})
    assert full["steps"] == 8 + 1 + 2
    assert (full["memory_peak"], full["compressor_calls"], full["invalid"]) == (0, 0, 0)
    assert ccm["success"] == 1
    assert 0 < ccm["memory_peak"] < 50
    assert ccm["peak"] < full["peak"]
    assert list(full["prompts"]) == [str(turn) for turn in range(1, 12)]
    assert full["prompts"]["11"] == max(full["prompts"].values())
    assert list(full["cents"]) == [price.model for price in PRICES]

    cells = [Cell.read(record) for record in records(tmp_path)]
    of_full = [cell for cell in cells if cell.policy == "full"]
    assert full["input"] == sum(cell.input for cell in of_full) / 2
    cents = [100 * cost(cell.requests, PRICES[0], caching=False) for cell in of_full]
    assert full["uncached"] == pytest.approx(sum(cents) / 2, abs=1e-4)
    assert len({cell.key for cell in cells}) == len(cells) == 2 * len(table)


def test_each_episode_is_a_trajectory_that_can_be_read(tmp_path: Path) -> None:
    run(tmp_path, policy=("full", "ccm"), budgets=(700,))
    logs = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "episodes").iterdir()}
    assert set(logs) == {"full-whole-0", "full-whole-1", "ccm-700-0", "ccm-700-1"}
    for name, trajectory in logs.items():
        messages = messages_from_atif(trajectory)
        assert [message["role"] for message in messages] == ["user", *["assistant", "tool"] * 11]
        steps = [step for step in trajectory["steps"] if step["source"] == "agent"]
        total = sum(step["metrics"]["prompt_tokens"] for step in steps)
        assert total == trajectory["final_metrics"]["total_prompt_tokens"]
        assert trajectory["extra"] == {"reward": 1.0, "ended": "done"}
        assert ("extra" in steps[-1]) == name.startswith("ccm")
    assert logs["full-whole-0"] != logs["full-whole-1"]


def test_a_run_that_broke_off_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = {"policy": ("full", "lre", "ccm")}  # 10 episodes
    unbroken = run(tmp_path / "a", **some)
    played = 0
    play = module.play

    def breaks(*args: Any) -> Any:
        nonlocal played
        played += 1
        if played == 8:
            raise ModelError("the model has gone")
        return play(*args)

    monkeypatch.setattr(module, "play", breaks)
    with pytest.raises(ModelError, match="gone"):
        run(tmp_path / "b", **some)
    with (tmp_path / "b" / "records.jsonl").open("a") as file:
        file.write('{"policy": "cut off in mid-')
    resumed = run(tmp_path / "b", **some)
    assert untimed(resumed) == untimed(unbroken)
    assert played == 7 + 1 + (10 - 7)
    assert untimed(records(tmp_path / "b")) == untimed(records(tmp_path / "a"))
    run(tmp_path / "b", **some)  # one that is finished begins anew
    assert played == 8 + 3 + 10


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    one, other = (untimed(run(tmp_path / str(seed), seed=seed, policy=("fifo",))) for seed in (0, 50))
    assert one != other
    assert untimed(run(tmp_path / "again", policy=("fifo",))) == one


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--environment", "recall", "--model", "scripted", "--policy", "fifo", "ccm", "--budgets", "700"]
    sizes = [part for pair in EASY for part in ("--option", pair)]
    rest = ["--episodes", "1", "--out", str(tmp_path / "out"), "--json", "--no-tools"]
    app(["bench", "agent", *given, *sizes, *rest], result_action="return_value")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "agent@1: recall@1, scripted" in printed.err
    config = (tmp_path / "out" / "config.json").read_text()
    assert json.loads(config)["option"] == {"codes": 2, "pages": 8, "distance": 2, "words": 20}
    assert str(tmp_path) not in config


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"environment": "recal"}, "did you mean 'recall'"),
        ({"option": ("code=3",)}, "did you mean 'codes'"),
        ({"option": ("codes",)}, "NAME=VALUE"),
        ({"option": ("codes=0",)}, "codes must be"),
        ({"policy": ("fifo", "lree")}, "did you mean 'lre'"),
        ({"policy": ("acon",)}, "--summariser"),
        ({"model": "embeded"}, "did you mean 'embedded'"),
        ({"budgets": ()}, "above 0"),
        ({"episodes": 0}, "above 0"),
        ({"tokens": 0}, "above 0"),
    ],
)
def test_faulty_options_are_refused_before_the_work(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_environment_without_a_script_needs_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetless.benchmarks.solvers.SOLVERS", {})
    with pytest.raises(ConfigError, match="no scripted agent for 'recall'"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_at_an_address(tmp_path: Path) -> None:
    provider = Provider()
    solver = scripted("recall", for_model())
    provider.answer = lambda path, body: solver(body)
    with serving(provider.app) as base:
        summary = run(tmp_path, model=f"{base}/v1", model_name="some-model", policy=("full", "ccm"), budgets=(700,))
        assert [row["success"] for row in summary["rows"]] == [1, 1]
        assert {body["model"] for body in provider.bodies} == {"some-model"}
        provider.answer = lambda path, body: (400, {"error": {"message": "too long"}})
        (row,) = run(tmp_path, model=f"{base}/v1", model_name="some-model", policy=("full",))["rows"]
    assert (row["ended"], row["steps"], row["success"], row["prompts"]) == ({"refused": 2}, 0, 0, {})
    assert base not in (tmp_path / "config.json").read_text()


def test_the_default_policies_are_all_that_need_no_model() -> None:
    names = module._all(None)
    assert {"full", "lre", "relevance-every-turn", "ccm"} <= set(names)
    assert not {"summary", "acon"} & set(names)
    assert {"summary", "acon"} <= set(module._all("embedded"))


def test_a_record_comes_back_as_the_cell_that_it_was() -> None:
    cell = Cell("ccm", None, 3, 0.5, 4, 1, "turns", "", 2, 1, 0.5, [0, 7], [Request(9, 0, 2, 4), Request(12, 5, 2, 7)])
    assert Cell.read(json.loads(json.dumps(cell.record()))) == cell
    assert (cell.input, cell.peak) == (21, 12)


def test_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    agent_plot(run(tmp_path, policy=("full", "lre"), episodes=1), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_at_2048_tokens_lre_recalls_what_the_full_history_does_and_fifo_does_not(tmp_path: Path) -> None:
    summary = run(tmp_path, option=(), policy=("full", "fifo", "lre", "ccm"), budgets=(2_048,), episodes=1)
    found = {row["policy"]: row for row in summary["rows"]}
    assert found["lre"]["success"] >= found["full"]["success"] - 0.05
    assert found["fifo"]["success"] < 0.5
    assert found["ccm"]["success"] == 1
    assert found["full"]["peak"] > 10 * found["ccm"]["peak"]
