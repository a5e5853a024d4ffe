"""A server that takes chat requests as vLLM 0.22 and later do with `--enable-prompt-embeds` and LoRA adapters.

Only the checks are vLLM's: a content part is base64 of what `torch.save` wrote, loaded with `weights_only`, a tensor of
two dimensions, floating, exactly as wide as the model; no text holds the placeholder; `model` names a model or an
adapter that is served. What a request would have become is kept: for each message its role, and its content as a list
of texts and tensors.
"""

from __future__ import annotations

import json
from base64 import b64decode
from io import BytesIO
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["PLACEHOLDER", "Vllm"]

PLACEHOLDER = "<prompt_embeds>"


class Refusal(Exception):
    """What the server answers with status 400 or 404."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Vllm:
    """The server.

    Attributes:
        prompts: of each request that was taken, its messages as (role, [text or tensor, ...]).
        models: what each of these asked for.
        app: to be served.
    """

    def __init__(self, width: int, served: tuple[str, ...], answer: Any = None) -> None:
        self.width, self.served, self.answer = width, served, answer
        self.prompts: list[list[tuple[str, list[Any]]]] = []
        self.models: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.app = Starlette(routes=[Route("/v1/chat/completions", self._serve, methods=["POST"])])

    async def _serve(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        try:
            if body["model"] not in self.served:
                raise Refusal(f"The model `{body['model']}` does not exist.", 404)
            prompt = [(m["role"], self._content(m.get("content"))) for m in body["messages"]]
        except Refusal as refused:
            return JSONResponse({"error": {"message": str(refused), "type": "BadRequestError"}}, refused.status)
        self.prompts.append(prompt)
        self.models.append(body["model"])
        rows = sum(len(piece) if torch.is_tensor(piece) else len(piece.split()) for _, said in prompt for piece in said)
        text = self.answer(body) if self.answer is not None else f"{len(prompt)} messages"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": rows, "completion_tokens": 2, "total_tokens": rows + 2}
        return JSONResponse({"id": "a", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _content(self, content: Any) -> list[Any]:
        pieces = [content] if isinstance(content, str) else content or []
        return [self._piece(piece) for piece in pieces]

    def _piece(self, piece: Any) -> Any:
        if isinstance(piece, str) or piece["type"] == "text":
            text: str = piece if isinstance(piece, str) else piece["text"]
            if PLACEHOLDER in text:
                raise Refusal(f"messages hold the reserved token {PLACEHOLDER}")
            return text
        if piece["type"] != "prompt_embeds":
            raise Refusal(f"Unknown part type: {piece['type']}")
        if set(piece) != {"type", "data"} or not isinstance(piece["data"], str) or not piece["data"]:
            raise Refusal("prompt_embeds content part requires a non-empty `data` field")
        return self._tensor(piece["data"])

    def _tensor(self, data: str) -> Any:
        try:
            tensor = torch.load(BytesIO(b64decode(data, validate=True)), weights_only=True, map_location="cpu")
        except Exception as error:  # noqa: BLE001 - whatever the bytes do to torch
            raise Refusal(f"`prompt_embeds` can't be loaded: {error}") from None
        if not torch.is_tensor(tensor):
            raise Refusal("`prompt_embeds` payload did not deserialize to a torch.Tensor.")
        if tensor.dim() != 2 or tensor.shape[1] != self.width:
            raise Refusal(f"`prompt_embeds` must be (num_tokens, {self.width}); got {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise Refusal(f"`prompt_embeds` has dtype {tensor.dtype}, not a floating-point type")
        return tensor
