"""Token counts: text, messages and tool schemas, with fixed costs for what is not text.

The built-in estimate follows the `o200k_base` table; `for_model` scales it for other families. A message costs
`PER_MESSAGE` tokens more than its parts. Payloads of images, recordings and files are never counted as text:
they cost what `MEDIA_TOKENS` says, which errs high so that a budget holds. Memory vectors (`prompt_embeds`) cost a
token a row, which is what a server makes of them. Strings that look like special tokens are plain text. What a
provider reports as usage is the truth; sessions correct these counts by it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from forgetless.estimator import estimate
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Text, Thinking

__all__ = [
    "MEDIA_TOKENS",
    "MODELS",
    "PER_MESSAGE",
    "Counter",
    "ModelFacts",
    "for_model",
    "from_file",
    "model_facts",
]

PER_MESSAGE = 4
"""Tokens of a message beyond its parts: role marks and separators."""

MEDIA_TOKENS: Mapping[str, int] = MappingProxyType({"image": 1_600, "audio": 1_200, "file": 3_000})
"""Fixed costs: an image at the largest size that providers bill without tiling twice (about 1,600 tokens), about
two minutes of recorded speech at 10 tokens a second, a document of about two pages."""

SEALED_CHARS_PER_TOKEN = 6
"""Characters of encrypted reasoning (base64) for one token of the reasoning that it holds."""


PAYLOAD_CHARS = 2_000
"""A string in an unknown block that is longer than this and begins like base64 is a payload and no text."""

_PAYLOAD = re.compile(r"(data:[\w.+-]+/[\w.+-]+;base64,)?[A-Za-z0-9+/_-]{512}")


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts tokens of texts, parts and messages.

    Attributes:
        text: text -> tokens; any callable that never raises.
        media: kind of media -> its fixed cost in tokens.
    """

    text: Callable[[str], int]
    media: Mapping[str, int] = field(default_factory=lambda: MEDIA_TOKENS)

    def message(self, message: Message) -> int:
        """Tokens of a whole message, `PER_MESSAGE` included."""
        parts = message.parts
        if len(parts) == 1 and type(parts[0]) is Text:  # nearly every message: worth a short way
            return PER_MESSAGE + self.text(parts[0].text)
        return PER_MESSAGE + sum(map(self.part, parts))

    def part(self, part: Part) -> int:
        """Tokens of one part."""
        match part:
            case Text(text=text):
                return self.text(text)
            case Call(name=name, arguments=arguments):
                return self.text(name) + self.text(arguments if isinstance(arguments, str) else _json(arguments))
            case Result(content=content):
                return sum(map(self.part, content))
            case Media(kind=kind):
                return self.media[kind]
            case Thinking(text=text, sealed=sealed):
                return self.text(text) + sealed // SEALED_CHARS_PER_TOKEN
            case Opaque(block=block):
                rows = _rows(block["data"]) if block.get("type") == "prompt_embeds" and "data" in block else 0
                return rows or self.json(block)

    def json(self, value: object) -> int:
        """Tokens of a JSON value as compact text: tool schemas, response formats, opaque blocks.

        Payloads in it cost what an image costs, encrypted content what encrypted reasoning costs.
        """
        payloads: list[int] = []
        bare = self._without_payloads(value, payloads)
        return self.text(_json(bare)) + sum(payloads)

    def _without_payloads(self, value: object, payloads: list[int]) -> object:
        if isinstance(value, str) and len(value) > PAYLOAD_CHARS and _PAYLOAD.match(value):
            payloads.append(self.media["image"])
            return ""
        if isinstance(value, Mapping):
            sealed = value.get("encrypted_content")
            if isinstance(sealed, str):
                payloads.append(len(sealed) // SEALED_CHARS_PER_TOKEN)
                value = {**value, "encrypted_content": ""}
            return {key: self._without_payloads(inner, payloads) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_payloads(inner, payloads) for inner in value]
        return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _rows(data: object) -> int:
    """Rows of a tensor that `torch.save` has written, in base64; 0 where it is none. Nothing in it is loaded or run."""
    import pickletools
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(BytesIO(b64decode(data if isinstance(data, str) else "", validate=True))) as archive:
            about = next(one for one in archive.infolist() if one.filename.endswith("/data.pkl"))
            written = archive.read(about) if about.file_size <= PAYLOAD_CHARS else b""
        numbers: list[int] = []  # the offset of the tensor in its storage, then its shape, up to the end of that tuple
        for operation, value, _ in pickletools.genops(written):
            if operation.name == "BINPERSID":
                numbers.clear()
            elif operation.name.startswith("BININT") and value is not None:
                numbers.append(value)
            elif operation.name in ("TUPLE2", "TUPLE3") and len(numbers) > 2:
                return max(0, numbers[-2])
    except (ValueError, LookupError, EOFError, RuntimeError, OSError, StopIteration, BadZipFile):
        pass
    return 0


class ModelFacts(NamedTuple):
    """What is known of a family of models.

    Attributes:
        window: most tokens of a request and its reply; of the request alone where the provider limits it so.
        factor: tokens of its tokenizer for one of `o200k_base`, on mixed English and code.
    """

    window: int
    factor: float


# The longest name wins. Windows are the published ones, the smaller where a family has several. Factors are measured
# where a family's tokenizer is public (docs/tokens.md says which), else set high so that a budget holds.
MODELS: Mapping[str, ModelFacts] = MappingProxyType(
    {
        "gpt-3.5": ModelFacts(16_385, 1.02),
        "gpt-35": ModelFacts(16_385, 1.02),
        "gpt-4": ModelFacts(8_192, 1.02),
        "gpt-4-32k": ModelFacts(32_768, 1.02),
        "gpt-4-0125": ModelFacts(128_000, 1.02),
        "gpt-4-1106": ModelFacts(128_000, 1.02),
        "gpt-4-turbo": ModelFacts(128_000, 1.02),
        "gpt-4o": ModelFacts(128_000, 1.0),
        "chatgpt-4o": ModelFacts(128_000, 1.0),
        "gpt-4.1": ModelFacts(1_047_576, 1.0),
        "gpt-5": ModelFacts(272_000, 1.0),
        "gpt-oss": ModelFacts(128_000, 1.0),
        "o1": ModelFacts(200_000, 1.0),
        "o1-mini": ModelFacts(128_000, 1.0),
        "o3": ModelFacts(200_000, 1.0),
        "o4-mini": ModelFacts(200_000, 1.0),
        "claude": ModelFacts(200_000, 1.3),
        "gemini": ModelFacts(1_048_576, 1.15),
        "llama-3": ModelFacts(8_192, 1.02),
        "llama3": ModelFacts(8_192, 1.02),
        **dict.fromkeys(
            ("llama-3.1", "llama-3.2", "llama-3.3", "llama3.1", "llama3.2", "llama3.3"), ModelFacts(128_000, 1.02)
        ),
        "qwen": ModelFacts(32_768, 1.07),
        "mistral": ModelFacts(32_768, 1.3),
        "deepseek": ModelFacts(64_000, 1.09),
        "glm": ModelFacts(128_000, 1.1),
        "kimi": ModelFacts(128_000, 1.1),
    }
)

# Providers and routers write things before the name: `openai/`, `ft:`, `us.anthropic.`
_NAMED = re.compile(rf"(?:^|[/:.])({'|'.join(map(re.escape, sorted(MODELS, key=len, reverse=True)))})")


def model_facts(model: str) -> ModelFacts | None:
    """The facts of the family that `model` belongs to, or None."""
    found = _NAMED.search(model.lower())
    return MODELS[found[1]] if found else None


def for_model(model: str | None = None, *, media: Mapping[str, int] = MEDIA_TOKENS) -> Counter:
    """The built-in counter, scaled for the family of `model`; unknown models count as `o200k_base`."""
    facts = model_facts(model) if model else None
    return Counter(_scaled(facts.factor if facts else 1.0), media)


@cache
def _scaled(factor: float) -> Callable[[str], int]:
    """The estimate times `factor`, the same function each time, so that counters can be compared."""
    if factor == 1.0:
        return lambda text: ceil(estimate(text))
    return lambda text: ceil(estimate(text) * factor)


def from_file(path: str, *, media: Mapping[str, int] = MEDIA_TOKENS) -> Counter:
    """An exact counter from a tokenizer file: a Hugging Face `tokenizer.json` or a `.tiktoken` rank file.

    Raises:
        MissingExtra: the library that reads the file is not installed.
        ConfigError: the file cannot be read.
    """
    from forgetless.tokenizer_file import load

    return Counter(load(path), media)
