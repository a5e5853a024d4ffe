"""Chat Completions messages as the tokens of a model's own chat template, with a mark where a memory stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

from forgetless.errors import RequestError
from forgetless.models.embeds import TYPE
from forgetless.replies.loose import string

__all__ = ["MEMORY", "memories", "numbers", "pieces", "render"]

MEMORY = -1
"""Stands among tokens where all vectors of one content part go."""


def render(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, answer: bool) -> list[int]:
    """The tokens of messages; what looks like a special token in a text is text.

    Args:
        tokenizer: of transformers, with a chat template.
        messages: contents are texts, or lists of parts with texts and memories.
        answer: whether the beginning of the assistant's next message follows.

    Raises:
        RequestError: the template refuses the messages, or a part is neither a text nor a memory.
    """
    return [number for tokens, _ in pieces(tokenizer, messages, answer=answer) for number in tokens]


def pieces(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, answer: bool
) -> Iterator[tuple[list[int], int | None]]:
    """The same in pieces, each with the index of the message that says it, or None for the template's own.

    Raises:
        RequestError: as above.
    """
    import jinja2

    # The template sees a name in the place of each content, so that no content can pass for a piece of the template.
    secret = token_hex(8)
    contents = [_parts(at, message) for at, message in enumerate(messages)]
    named = [{**message, "content": f"{secret}:{at};"} for at, message in enumerate(messages)]
    try:
        text = tokenizer.apply_chat_template(named, tokenize=False, add_generation_prompt=answer)
    except (jinja2.TemplateError, ValueError) as error:  # the latter where there is no template
        raise RequestError(f"the model's chat template refuses these messages: {error}") from error
    head, *rest = text.split(f"{secret}:")
    yield numbers(tokenizer, head, special=True), None
    for piece in rest:
        at, _, after = piece.partition(";")
        for part in contents[int(at)]:
            yield [MEMORY] if part is None else numbers(tokenizer, part), int(at)
        yield numbers(tokenizer, after, special=True), None


def numbers(tokenizer: Any, text: str, *, special: bool = False) -> list[int]:
    """The tokens of a text, with nothing before or after them.

    Args:
        tokenizer: of transformers.
        text: to read.
        special: whether the names of special tokens in it mean them.
    """
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )  # lone surrogates are in no vocabulary
    found: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=not special).input_ids
    return found


def memories(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The parts that hold vectors, in the order of their marks."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, list | tuple):
            yield from (part for part in content if isinstance(part, Mapping) and part.get("type") == TYPE)


def _parts(at: int, message: Mapping[str, Any]) -> list[str | None]:
    """The texts of a content, with None for each memory."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return [content or ""]
    found: list[str | None] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", TYPE):
            raise RequestError(f"a local model can't take a content part of type {kind!r}", message=at)
        found.append(string(part.get("text")) if kind == "text" else None)
    return found
