import asyncio
import json
import sys
from contextlib import closing

import pytest

from forgetless.benchmarks.loopback import Server, forgetless
from forgetless.benchmarks.tasks.durability import KINDS, Talker, durability, faults_of, talk
from forgetless.errors import ConfigError
from forgetless.stores.open import open_store


def test_what_clients_have_read_survives_kills_of_the_proxy(tmp_path, capsys):
    durability(requests=60, kills=2, out=tmp_path, json=True)
    summary = json.loads((tmp_path / "summary.json").read_text())

    assert json.loads(capsys.readouterr().out) == summary
    assert [row["killed"] for row in summary["rounds"]] == [True, True, False]
    assert all(row["read"] >= 30 for row in summary["rounds"])
    assert summary["under_way_at_kills"] >= 60
    assert summary["read"] == sum(row["read"] for row in summary["rounds"])
    assert all(target["met"] for target in summary["targets"])


def test_what_a_store_lacks_is_found(tmp_path):
    talkers = [Talker(n, *kind) for n, kind in enumerate(KINDS)]
    with (
        Server([sys.executable, "-m", "forgetless.benchmarks.mock_upstream"]) as upstream,
        forgetless(upstream.address, tmp_path / "store.db", budget=1_000) as server,
    ):
        row = asyncio.run(talk(server, talkers, None))
    with closing(open_store(str(tmp_path / "store.db"))) as store:
        whole = faults_of(store, talkers)
        talkers[0].read.append("fr_never")
        talkers[1].known.append({"role": "user", "content": "never said"})
        broken = faults_of(store, talkers)
        store.purge(conversation=talkers[2].conversation)
        purged = faults_of(store, talkers)

    assert (row["read"], row["errors"]) == (len(KINDS), {})
    assert whole == {"in_store": len(KINDS), "missing": 0, "half_written": 0, "check": []}
    assert (broken["missing"], broken["half_written"]) == (1, 1)
    assert (purged["missing"], purged["half_written"]) == (2, 2)


def test_faulty_options_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least 1"):
        durability(requests=0, out=tmp_path)
