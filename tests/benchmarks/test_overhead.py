import json

import pytest

from forgetless.benchmarks.peers import Measure
from forgetless.benchmarks.tasks import overhead as module
from forgetless.benchmarks.tasks.overhead import TURN, VARIANTS, history, overhead
from forgetless.compaction import compact
from forgetless.errors import ConfigError, MissingExtra

KEYS = {"min_ms", "median_ms", "peak_bytes", "ratio_pairs", "ratio_min"}
OURS = ["full", "recent", "fifo", "masking", "bm25"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_history_is_seeded_and_of_its_size(variant):
    messages = history(41, 3, variant)

    assert messages == history(41, 3, variant)
    assert messages[1:] != history(41, 4, variant)[1:]
    assert len(messages) == 41
    assert [m["role"] for m in messages[:2]] == ["system", "user"]


def test_chat_messages_are_plain_take_turns_and_have_the_promised_length():
    messages = history(200)

    assert {tuple(message) for message in messages} == {("role", "content")}
    assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * 99 + ["user"]
    assert all(450 <= len(message["content"]) <= 480 for message in messages)


def test_messages_have_about_the_promised_tokens():
    encoding = pytest.importorskip("bpe_openai").get_encoding("o200k_base")
    counts = [len(encoding.encode(message["content"])) for message in history(200)]

    assert 100 <= sum(counts) / len(counts) + 4 <= 115


def test_steps_pair_each_result_with_its_call():
    messages = history(33, 0, "steps")
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]

    assert calls == results
    assert len(calls) == 12
    assert compact(messages, budget=10**6, policy="full").messages == messages


def test_a_run_without_peers_writes_the_whole_folder(tmp_path, monkeypatch, capsys):
    _without_matplotlib(monkeypatch)
    overhead(sizes=(50, 20), repeats=2, budget=2_000, out=tmp_path, peers=False, json=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    config = json.loads((tmp_path / "config.json").read_text())

    assert json.loads(capsys.readouterr().out) == summary
    assert {"seed", "sizes", "repeats", "budget", "peers", "data"} <= set(config)
    assert summary["sizes"] == [20, 50]
    assert list(summary["variants"]) == list(VARIANTS)
    for by_size in summary["variants"].values():
        for rows in by_size.values():
            assert list(rows) == [*OURS, TURN]
            assert all(set(row) == KEYS for row in rows.values())
            assert all(0 < row["min_ms"] <= row["median_ms"] for row in rows.values())
    assert (summary["growth"]["chat"]["from"], summary["growth"]["chat"]["to"]) == (20, 50)
    assert summary["targets"] == []
    assert summary["stages"]["size"] == 50
    assert {"parse", "split", "count", "emit", "policy bm25"} <= set(summary["stages"]["min_ms"])
    assert len(records) == len(VARIANTS) * 2 * (len(OURS) + 1) * (2 + 1)  # two times and a peak of memory


def _without_matplotlib(monkeypatch):
    def missing(summary, path):
        raise MissingExtra("plots", "matplotlib")

    monkeypatch.setattr("forgetless.benchmarks.tasks.overhead.overhead_plot", missing)


class FakePeers:
    """As fast as LangChain would be if it took a second, and one peer that never ends."""

    def __enter__(self):
        self.asked = []
        return self

    def __exit__(self, *_):
        pass

    def load(self, messages):
        self.size = len(messages)

    def time(self, name, budget, *, limit):
        self.asked.append(name)
        return Measure(None, "took over 60 s") if name == "litellm-trim" else Measure(self.size / 10)

    def memory(self, name, budget, *, limit):
        return Measure(1_000.0)


def test_ratios_growth_and_targets_are_beside_the_peers(tmp_path, monkeypatch):
    _without_matplotlib(monkeypatch)
    fake = FakePeers()
    monkeypatch.setattr(module, "Peers", lambda: fake)
    monkeypatch.setattr(module, "STAGES_AT", 20)
    overhead(sizes=(20, 40, 80), repeats=4, budget=2_000, out=tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = summary["variants"]["chat"]["40"]

    assert rows["langchain-trim-defaults"]["ratio_pairs"]["litellm-compress"] == 1
    assert rows["bm25"]["ratio_min"]["litellm-compress"] == pytest.approx(rows["bm25"]["min_ms"] / 4_000)
    assert rows["litellm-trim"] == {"error": "took over 60 s"}
    assert fake.asked.count("litellm-trim") == 1
    # Slow calls are repeated three times, and their memory is not traced.
    assert fake.asked.count("litellm-compress") == 4 + 4 + 3
    assert summary["variants"]["chat"]["80"]["litellm-compress"]["peak_bytes"] is None
    assert summary["growth"]["chat"]["subjects"]["langchain-trim-defaults"] == {
        "factor_median": 2,
        "factor_min": 2,
        "to_langchain": 1,
    }
    assert [target["limit"] for target in summary["targets"]] == [1.5, 4, 1, 1, 0.02, 1.1, 1.1]
    assert all(target["met"] for target in summary["targets"][:5])


@pytest.mark.parametrize("options", [{"sizes": ()}, {"sizes": (1,)}, {"repeats": 0}])
def test_faulty_options_are_refused(options, tmp_path):
    with pytest.raises(ConfigError, match="at least"):
        overhead(out=tmp_path, peers=False, **options)


def test_the_plot_is_drawn_where_matplotlib_is(tmp_path):
    pytest.importorskip("matplotlib")
    overhead(sizes=(20, 50), repeats=1, budget=2_000, out=tmp_path, peers=False)

    assert (tmp_path / "overhead.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_matplotlib_says_so_and_ends_well(tmp_path, monkeypatch, capsys):
    _without_matplotlib(monkeypatch)
    overhead(sizes=(20,), repeats=1, budget=2_000, out=tmp_path, peers=False)

    assert "no plot" in capsys.readouterr().err
    assert (tmp_path / "summary.json").exists()
