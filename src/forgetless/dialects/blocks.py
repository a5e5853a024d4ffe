"""Content blocks that dialects share, and what a media block holds when it moves from one dialect to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forgetless.errors import RequestError
from forgetless.messages import Media, Opaque, Part, Text, Wire

__all__ = ["Source", "part", "source", "text_block"]

_TEXTS = frozenset({"text", "input_text", "output_text"})
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "file",
    "document": "file",
    "file": "file",
    "input_file": "file",
}


def part(block: Wire) -> Part:
    """A content block as a part: text, media, or opaque where no dialect needs to look inside."""
    kind = block["type"]
    if kind in _TEXTS and isinstance(text := block.get("text"), str):
        return Text(text, block)
    if kind in _MEDIA and not _is_text_document(block):
        return Media(_MEDIA[kind], block)  # type: ignore[arg-type]
    return Opaque(block)


def _is_text_document(block: Wire) -> bool:
    """Documents given as text cost what their text costs, so they count as opaque JSON."""
    held = block.get("source")
    return isinstance(held, Mapping) and held.get("type") in ("text", "content")


def text_block(text: Text, kind: str = "text") -> dict[str, Any]:
    """A text part as a block, over the block that it came from."""
    return {**(text.wire or {"type": kind}), "text": text.text}


class Source(NamedTuple):
    """Where a media block has its payload: a URL, or base64 `data` of type `mime`."""

    kind: str
    mime: str
    data: str
    url: str


def source(media: Media) -> Source:
    """The payload of a media block of any dialect.

    Raises:
        RequestError: the payload is held by the provider (a file id), so another provider can't have it.
    """
    block = media.block
    held = block.get("source")
    if isinstance(held, Mapping):  # anthropic
        if held.get("type") == "base64":
            return Source(media.kind, str(held.get("media_type", "")), str(held.get("data", "")), "")
        url = held.get("url")
    elif isinstance(audio := block.get("input_audio"), Mapping):
        return Source("audio", f"audio/{audio.get('format', 'wav')}", str(audio.get("data", "")), "")
    else:
        url = block.get("image_url") or block.get("file_url") or block.get("file_data")
        nested = url if isinstance(url, Mapping) else block.get("file")
        if isinstance(nested, Mapping):
            url = nested.get("url") or nested.get("file_data")
    if not isinstance(url, str) or not url:
        raise RequestError(f"a {media.kind} that the provider holds by id can't move to another dialect")
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Source(media.kind, head.removesuffix(";base64"), data, "")
    return Source(media.kind, "", "", url)
