"""A model of transformers as a `Latent`: it compresses texts to vectors, and answers with vectors in its prompt."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import torch

from forgetless.errors import ModelError, RequestError
from forgetless.models.embeds import vectors
from forgetless.models.latent import Vectors
from forgetless.models.local.chat import memories, numbers, render
from forgetless.models.local.network import Network, Sample

__all__ = ["Local"]

REPLY = 512
"""Most tokens of a reply where a request does not say."""

ROWS = 16
"""Texts that are compressed at once."""

REFUSED = ("tools", "functions", "response_format", "logprobs", "audio")
"""What a request may not ask for."""

NUMBERS = {"max_completion_tokens": int, "max_tokens": int, "temperature": int | float, "seed": int}
"""What a request gives as numbers, and of which kind."""


class Local:
    """A model in this process. Calls may come from any thread; they queue.

    Greedy unless a request gives a temperature; with a `seed` the same request then gives the same reply.

    Attributes:
        name: of the backbone.
        window: most tokens of a request and its reply.
        slots: vectors of a text.
        width: numbers of a vector.
        most: tokens of a text that go in; what is longer is cut there.
        network: backbone and adapters.
        tokenizer: of the backbone.
        folder: of the adapters, where what was calibrated for them lies; None where they were not loaded from one.
    """

    window: int | None

    def __init__(self, name: str, network: Network, tokenizer: Any, folder: Path | None = None) -> None:
        self.name, self.network, self.tokenizer, self.folder = name, network.eval(), tokenizer, folder
        self.slots, self.width, self.most = network.shape.slots, network.width, network.shape.most
        self.window = getattr(network.model.config, "max_position_embeddings", None)
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"Local({self.name!r})"

    def encode(self, texts: Sequence[str]) -> list[Vectors]:
        """Vectors of each text, [slots, width]; the same for a text alone and among others, but for rounding."""
        found: dict[int, Vectors] = {}
        rows = [numbers(self.tokenizer, text)[: self.most] for text in texts]
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]))  # of like length together: less is padding
        for begin in range(0, len(order), ROWS):
            places = order[begin : begin + ROWS]
            with self._lock, torch.no_grad():
                memory = self.network.compress([rows[at] for at in places])
            found.update(zip(places, memory.cpu().numpy(), strict=True))
        return [found[at] for at in range(len(rows))]

    def loss(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[float, int]:
        """How surprising a reply is after messages: nats in all, and the tokens that they are of.

        Raises:
            RequestError: the messages are not such that the model can read them.
        """
        tokens, found = self._read(messages)
        wanted = numbers(self.tokenizer, reply)
        sample = Sample((), (*tokens, *wanted), tuple(wanted))
        with self._lock, torch.no_grad():
            (nats,) = self.network.losses([sample], [found])
        return float(nats.sum()), len(wanted)

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion for a request body.

        Raises:
            ModelError: the request is too long or asks for what the model can't do; it has status and body.
        """
        said = list(self._said(body))
        _, end, usage = said[-1]
        message = {"role": "assistant", "content": "".join(piece for piece, _, _ in said)}
        choice = {"index": 0, "message": message, "finish_reason": end, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a completion; closing the generator stops the model.

        Raises:
            ModelError: as above.
        """
        head = {**self._head("chat.completion.chunk"), "usage": None}
        delta: dict[str, Any] = {"role": "assistant"}
        for piece, why, counted in self._said(body):
            yield {**head, "choices": [{"index": 0, "delta": {**delta, "content": piece}, "finish_reason": None}]}
            delta, end, usage = {}, why, counted
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": usage}

    def close(self) -> None:
        """Nothing to let go of: memory is freed with the model."""

    def _said(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, int]]]:
        """Pieces of the reply, each with why it would end there and the usage so far; one at least."""
        tokens, memory = self._asked(body)
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or REPLY
        with self._lock, torch.no_grad():
            inputs = self.network.inputs(tokens, memory)
            if self.window is not None and len(inputs) + 1 > self.window:
                raise self._refusal(f"{len(inputs):,} tokens: its window is {self.window:,}", "messages")
            limit = min(limit, (self.window or len(inputs) + limit) - len(inputs))
            said: list[int] = []
            shown = ""
            ends = self.network.ends(self.tokenizer)
            for number in self.network.said(inputs, body.get("temperature") or 0.0, body.get("seed")):
                ended = number in ends
                said += [] if ended else [number]
                text = self.tokenizer.decode(said, skip_special_tokens=True)
                last = ended or len(said) >= limit
                new = text[len(shown) :] if last or not text.endswith("\ufffd") else ""  # half a character waits
                shown += new
                usage = {"prompt_tokens": len(inputs), "completion_tokens": len(said)}
                usage["total_tokens"] = sum(usage.values())
                yield new, "stop" if ended else "length", usage
                if last:
                    return

    def _asked(self, body: Mapping[str, Any]) -> tuple[list[int], list[Any]]:
        for name in REFUSED:
            if body.get(name):
                raise self._refusal(name, name)
        for name, kind in NUMBERS.items():
            if not isinstance(body.get(name) or 0, kind):
                raise self._refusal(f"{name} {body[name]!r}", name)
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise self._refusal("messages that are no list of messages", "messages")
        try:
            return self._read(messages)
        except RequestError as error:
            raise self._refusal(str(error), "messages") from error

    def _read(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[Any]]:
        """The tokens of a prompt, and the memories for the marks among them."""
        found = [torch.from_numpy(vectors(part, self.width)).to(self.network.rows) for part in memories(messages)]
        return render(self.tokenizer, messages, answer=True), found

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": self.name}

    def _refusal(self, what: str, param: str) -> ModelError:
        message = f"model {self.name!r} can't take {what}"
        error = {"code": 400, "message": message, "type": "invalid_request_error", "param": param}
        return ModelError(message, status=400, body={"error": error})
