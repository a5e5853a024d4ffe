import json
import sys

import httpx2
import pytest

from forgetless.benchmarks import litellm_server, loopback
from forgetless.benchmarks.load import judged, percentiles, streams
from forgetless.benchmarks.loopback import Server, listener
from forgetless.benchmarks.mock_upstream import PATHS, asking
from forgetless.benchmarks.tasks.proxy import BARE, BUDGETS, KINDS, proxy
from forgetless.errors import ConfigError
from live import Provider, serving


@pytest.fixture(scope="module")
def upstream():
    with Server([sys.executable, "-m", "forgetless.benchmarks.mock_upstream"]) as server:
        yield server


def test_a_run_writes_the_whole_folder_and_goes_on_without_a_peer_that_cannot_be_had(tmp_path, monkeypatch, capsys):
    def failing(pins):
        raise ConfigError("no package index")

    monkeypatch.setattr(litellm_server, "environment", failing)
    proxy(requests=2, clients=5, seconds=1, out=tmp_path, json=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]

    assert json.loads(capsys.readouterr().out) == summary
    assert set(summary["latency"]) == set(KINDS)
    for by_name in summary["latency"].values():
        assert list(by_name) == [BARE, *BUDGETS]
        assert all(0 < row["ms"]["p50"] <= row["ms"]["p99"] for row in by_name.values())
        assert all(("added_ms" in row) == (name != BARE) for name, row in by_name.items())
    for row in summary["streams"].values():
        assert (row["errors"], row["lost"], row["disordered"]) == ({}, 0, 0)
        assert 5 <= row["events"] <= 25
        assert row["delay_ms"]["p50"] > 0
    assert list(summary["streams"]) == [BARE, "forgetless"]
    assert summary["left_out"] == {"litellm": "no package index"}
    assert len(summary["targets"]) >= 7
    assert len(records) == 2 * len(KINDS) * (1 + len(BUDGETS)) + 2


@pytest.mark.parametrize("options", [{"requests": 0}, {"clients": 0}, {"seconds": 0}])
def test_faulty_options_are_refused(options, tmp_path):
    with pytest.raises(ConfigError, match="at least"):
        proxy(out=tmp_path, peers=False, **options)


@pytest.mark.parametrize(
    ("text", "lost", "disordered"),
    [
        ("7:0:1.0 7:1:1.0 7:2:1.0 ", 0, 0),
        ("7:0:1.0 7:2:1.0 ", 1, 0),
        ("7:1:1.0 7:0:1.0 7:2:1.0 ", 0, 1),
        ("7:0:1.0 7:1:1.0 7:1:1.0 7:2:1.0 ", 0, 1),
        ("7:0:1.0 8:1:1.0 7:2:1.0 ", 1, 1),
        ("", 3, 0),
    ],
)
def test_lost_and_disordered_events_are_found(text, lost, disordered):
    assert judged(text, 7, 3) == (lost, disordered)


def test_streams_that_fail_are_counted(monkeypatch):
    monkeypatch.setattr("forgetless.benchmarks.load.RETRY", 0.01)
    provider = Provider()
    cut = [("", {"choices": [{"index": 0, "delta": {"content": "0:0:1.0 "}, "finish_reason": None}]})]
    answers = iter([(500, {"error": "no"}), [("", {"error": "no"}), ("", "[DONE]")], cut])
    provider.answer = lambda path, body: next(answers, [*cut, ("", "[DONE]")])
    with serving(provider.app) as address:
        load = streams(_Found(address), 1, 0.8)

    assert load.errors == {"status 500": 1, "error in a stream": 1, "stream without an end": 1}
    assert (load.streams, load.events) == (1, 2)  # the first of them in a reply that broke off
    assert 1 <= load.lost <= 2  # it asked for three events or so, and got one


class _Found:
    """A server that is not a process of ours."""

    rss = cpu = None

    def __init__(self, address):
        self.address = address


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_upstream_answers_as_it_is_asked_to(upstream, dialect, stream):
    def ask(content):
        said = {"input" if dialect == "responses" else "messages": [{"role": "user", "content": content}]}
        return httpx2.post(upstream.address + PATHS[dialect], json={"model": "m", "stream": stream, **said})

    answer = ask(f"go on {asking(3, 2, 0.001)}")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
    assert answer.text.count("3:0:") >= 1
    assert answer.text.index("3:0:") < answer.text.index("3:1:")


def test_the_upstream_answers_the_same_message_with_the_same_text(upstream):
    def said(content):
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        return httpx2.post(upstream.address + PATHS["chat"], json=body).json()["choices"][0]["message"]["content"]

    assert said("one") == said("one") != said("two")
    assert 300 < len(said("one")) < 500


def test_a_server_that_ends_says_why():
    with pytest.raises(ConfigError, match="did not start to serve: out of luck"):
        Server([sys.executable, "-c", "import sys; sys.exit('out of luck')"])


def test_a_server_can_be_killed_and_stopped_after_it(upstream):
    with Server([sys.executable, "-m", "forgetless.benchmarks.bare_proxy", upstream.address]) as server:
        assert server.rss is None or server.rss > 2**20
        server.kill()
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(server.address)


def test_a_listener_is_one_for_tcp():
    with listener() as made:
        assert made.proto == loopback.socket.IPPROTO_TCP


def test_percentiles_are_of_the_values():
    assert percentiles(list(range(101))) == {"p50": 50, "p95": 95, "p99": 99}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
