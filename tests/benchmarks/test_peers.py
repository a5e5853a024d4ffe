import os
import subprocess
import sys
from pathlib import Path

import pytest

from forgetless.benchmarks import peers as module
from forgetless.benchmarks.peers import NAMES, Peers, environment
from forgetless.errors import ConfigError

LANGCHAIN = """
def trim_messages(messages, *, max_tokens, strategy, token_counter, **options):
    print("a library that talks on stdout")
    assert (strategy, token_counter) == ("last", "approximate")
    if messages[0]["content"] == "fail":
        raise ValueError("no such history")
    if messages[0]["content"] == "die":
        import os, sys
        sys.stderr.write("out of luck\\n")
        sys.stderr.flush()
        os._exit(3)
    if messages[0]["content"] == "sleep":
        import time
        time.sleep(60)
    return [("kept", message, sorted(options)) for message in messages[-max_tokens:]]

def convert_to_openai_messages(found):
    return [{**message, "options": options} for _, message, options in found]
"""
LITELLM = """
import os
from . import utils

def compress(messages, model, compression_trigger):
    return {"messages": messages[:compression_trigger], "model": model}
"""
LITELLM_UTILS = """
import os

def trim_messages(messages, model, max_tokens):
    note = {"role": "user", "content": os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] + " " + model}
    return [note, *messages[:max_tokens]]
"""
MESSAGES = [{"role": "user", "content": word} for word in ("one", "two", "three")]


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """Workers of this interpreter, with stand-ins for the libraries."""
    for path, text in {
        "langchain_core/__init__.py": "",
        "langchain_core/messages.py": LANGCHAIN,
        "litellm/__init__.py": LITELLM,
        "litellm/utils.py": LITELLM_UTILS,
    }.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Peers(sys.executable) as found:
        yield found


def test_each_peer_answers_in_plain_messages(peers):
    replies = {name: peers.call(name, MESSAGES, 2) for name in NAMES}

    assert all(reply.error is None for reply in replies.values())
    assert [m["content"] for m in replies["langchain-trim"].messages] == ["two", "three"]
    assert replies["langchain-trim"].messages[0]["options"] == ["end_on", "include_system", "start_on"]
    assert replies["langchain-trim-defaults"].messages[0]["options"] == []
    assert [m["content"] for m in replies["litellm-trim"].messages] == ["True gpt-4o", "one", "two"]
    assert replies["litellm-compress"].messages == MESSAGES[:2]


def test_a_failure_of_the_library_is_a_reply(peers):
    reply = peers.call("langchain-trim", [{"role": "user", "content": "fail"}], 1)

    assert reply.messages is None
    assert reply.error == "ValueError: no such history"
    assert peers.call("langchain-trim", MESSAGES, 1).error is None


def test_a_dead_worker_is_a_reply_and_the_next_call_has_a_new_one(peers):
    reply = peers.call("langchain-trim", [{"role": "user", "content": "die"}], 1)

    assert reply.error == "the worker died: out of luck"
    assert peers.call("langchain-trim", MESSAGES, 1).error is None


def test_a_call_over_its_limit_is_given_up(peers):
    reply = peers.call("langchain-trim", [{"role": "user", "content": "sleep"}], 1, limit=0.2)

    assert reply.error == "took over 0.2 s"


def test_time_and_memory_are_of_the_loaded_history(peers):
    peers.load(MESSAGES)
    seconds, held = peers.time("litellm-compress", 2), peers.memory("litellm-compress", 2)
    peers.load([{"role": "user", "content": "fail"}])

    assert seconds.error is held.error is None
    assert 0 < seconds.value < 1
    assert held.value > 0
    assert peers.time("langchain-trim", 2).error == "ValueError: no such history"


def test_a_worker_gets_the_history_again_after_it_was_given_up(peers):
    peers.load(MESSAGES)
    peers.call("langchain-trim", [{"role": "user", "content": "sleep"}], 1, limit=0.2)

    assert peers.time("langchain-trim", 2).error is None


def test_an_unknown_peer_is_refused(peers):
    with pytest.raises(ConfigError, match="unknown peer 'other'"):
        peers.call("other", MESSAGES, 1)


def test_a_missing_library_is_a_reply(peers, tmp_path):
    (tmp_path / "litellm/__init__.py").write_text("raise ImportError('no litellm')", encoding="utf-8")

    assert peers.call("litellm-trim", MESSAGES, 1).error == "ImportError: no litellm"


def _fake_install(monkeypatch, tmp_path, failing=None):
    """Replace `venv` and `pip` by something that makes folders; the list of commands is returned."""
    commands = []

    def run(command, **_):
        commands.append(command[1:])
        failed = failing is not None and failing in command
        if "venv" in command and not failed:
            python = Path(command[-1]) / ("Scripts" if os.name == "nt" else "bin") / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        return subprocess.CompletedProcess(command, int(failed), "", "ERROR: no index\n" if failed else "")

    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return commands


def test_the_environment_is_made_once(monkeypatch, tmp_path):
    commands = _fake_install(monkeypatch, tmp_path)
    first, second = environment(), environment()

    assert first == second
    assert first.exists()
    assert first.is_relative_to(tmp_path / "forgetless")
    assert [command[1] for command in commands] == ["venv", "pip"]
    assert commands[1][-2:] == list(module.PINS)


def test_a_failed_install_says_so_and_leaves_nothing(monkeypatch, tmp_path):
    _fake_install(monkeypatch, tmp_path, failing="pip")

    with pytest.raises(ConfigError, match="could not be installed: ERROR: no index"):
        environment()
    assert list((tmp_path / "forgetless").iterdir()) == []
