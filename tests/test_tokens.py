"""Counting: fixed costs for payloads, schemas counted, exact counters from files, families scaled."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from forgetless import ConfigError, MissingExtra, compact
from forgetless.registry import load_dialect
from forgetless.tokens import MEDIA_TOKENS, MODELS, PER_MESSAGE, Counter, for_model, from_file, model_facts
from strategies import any_dialect

DATA_URL = "data:image/png;base64,"


def b64(mime: str, data: str) -> dict[str, str]:
    return {"type": "base64", "media_type": mime, "data": data}


def tokens(dialect: str, message: dict[str, Any], counter: Counter) -> int:
    (parsed,) = load_dialect(dialect).parse([message]).messages
    return counter.message(parsed)


def test_a_message_is_its_parts_and_a_constant() -> None:
    counter = Counter(len)
    assert tokens("chat", {"role": "user", "content": "12345"}, counter) == 5 + PER_MESSAGE
    assert tokens("chat", {"role": "user", "content": None}, counter) == PER_MESSAGE
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert tokens("chat", {"role": "assistant", "content": "ab", "tool_calls": [call]}, counter) == 8 + PER_MESSAGE
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {"q": 1}}
    assert tokens("anthropic", {"role": "assistant", "content": [use]}, counter) == 4 + len('{"q":1}') + PER_MESSAGE


@pytest.mark.parametrize("size", [100, 400_000])
@pytest.mark.parametrize(
    ("dialect", "kind", "block"),
    [
        ("chat", "image", lambda d: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{d}"}}),
        ("chat", "audio", lambda d: {"type": "input_audio", "input_audio": {"data": d, "format": "wav"}}),
        ("chat", "file", lambda d: {"type": "file", "file": {"file_data": d, "filename": "a.pdf"}}),
        ("responses", "image", lambda d: {"type": "input_image", "image_url": f"data:image/png;base64,{d}"}),
        ("anthropic", "image", lambda d: {"type": "image", "source": b64("image/png", d)}),
        ("anthropic", "file", lambda d: {"type": "document", "source": b64("application/pdf", d)}),
    ],
)  # fmt: skip
def test_payloads_cost_what_their_kind_costs(dialect: str, kind: str, block: Any, size: int) -> None:
    message = {"role": "user", "content": [block("QUJD" * (size // 4))]}
    assert tokens(dialect, message, for_model()) == MEDIA_TOKENS[kind] + PER_MESSAGE
    own = Counter(len, media={**MEDIA_TOKENS, kind: 7})
    assert tokens(dialect, message, own) == 7 + PER_MESSAGE


def test_a_document_given_as_text_costs_its_text() -> None:
    block = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "word " * 5000},
    }
    assert tokens("anthropic", {"role": "user", "content": [block]}, for_model()) > MEDIA_TOKENS["file"]


@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        ("responses", {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "QUJD" * 100_000}),
        ("responses", {"type": "code_interpreter_call", "outputs": [{"url": DATA_URL + "QUJD" * 9_000}]}),
        ("responses", {"type": "compaction", "encrypted_content": "gAAA" * 1_000}),
        ("chat", {"role": "user", "content": [{"type": "video_url", "video_url": {"url": DATA_URL}}]}),
        ("anthropic", {"role": "user", "content": [{"type": "document", "source": {"type": "content", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100_000}}]}}]}),
    ],
)  # fmt: skip
def test_payloads_in_blocks_that_no_dialect_knows_are_no_text(dialect: str, message: dict[str, Any]) -> None:
    assert tokens(dialect, message, for_model()) < 3_200


def test_tool_schemas_are_in_the_total() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools}
    counter = Counter(len)
    schema = len(json.dumps(tools, separators=(",", ":")))
    assert compact(body, budget=10_000, counter=counter).tokens == 2 + PER_MESSAGE + schema


@given(any_dialect())
def test_any_conversation_can_be_counted(conversation: tuple[str, Any]) -> None:
    dialect, messages = conversation
    parsed = load_dialect(dialect).parse(messages)
    assert all(for_model().message(m) >= PER_MESSAGE for m in parsed.messages)


def test_families_scale_and_prefixes_of_providers_do_not_matter() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    assert for_model("claude-sonnet-4-5").text(text) > for_model("gpt-4o").text(text) == for_model().text(text)
    assert model_facts("openai/gpt-4o-mini") == model_facts("gpt-4o-2024-08-06")
    assert model_facts("gpt-4o") != model_facts("gpt-4")
    assert model_facts("my-own-model") is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "claude"),
        ("anthropic/claude-opus-4.5", "claude"),
        ("gpt-4-1106-preview", "gpt-4-1106"),
        ("gpt-4-32k-0613", "gpt-4-32k"),
        ("llama3.1:8b", "llama3.1"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3"),
        ("Qwen/Qwen2.5-7B", "qwen"),
        ("O3-mini", "o3"),
    ],
)
def test_models_are_known_by_the_names_that_providers_give_them(name: str, family: str) -> None:
    assert model_facts(name) == MODELS[family]


def test_the_default_budget_is_the_window_less_the_reply() -> None:
    body = {"model": "gpt-4o", "max_tokens": 8_000, "messages": [{"role": "user", "content": "hi"}]}
    assert compact(body).budget == 128_000 - 8_000
    assert compact({**body, "max_tokens": None}).budget == 128_000 - 16_000
    assert compact({**body, "max_tokens": -5}).budget == 128_000 - 16_000
    with pytest.raises(ConfigError, match=r"a reply of 200,000 tokens leaves nothing of the window of 'gpt-4o'"):
        compact({**body, "max_tokens": 200_000})
    with pytest.raises(ConfigError, match="window of model 'mine'"):
        compact({**body, "model": "mine"})
    with pytest.raises(ConfigError, match="above 0"):
        compact(body, budget=0)


@pytest.fixture
def word_level(tmp_path: Path) -> str:
    """A tokenizer.json that knows whole words, with a special token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"hello": 0, "world": 1, "[UNK]": 2, "<|end|>": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|end|>"])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def test_a_tokenizer_json_counts_exactly_and_special_tokens_as_text(word_level: str) -> None:
    counter = from_file(word_level)
    assert counter.text("hello world hello") == 3
    assert counter.text("<|end|>") == 3
    assert counter.text("hello \ud83d") == 2
    assert compact([{"role": "user", "content": "hello world"}], budget=100, counter=counter).tokens == 2 + PER_MESSAGE


def test_a_rank_file_counts_exactly(tmp_path: Path) -> None:
    ranks = [bytes([b]) for b in range(256)] + [b"he", b"ll", b"hell", b"hello"]
    path = tmp_path / "o200k_base.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(ranks)))
    counter = from_file(str(path))
    assert counter.text("hello") == 1
    assert counter.text("hello<|endoftext|>") == 1 + len("<|endoftext|>")


def test_truncation_and_padding_of_a_tokenizer_file_do_not_count(word_level: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(word_level)
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(word_level)
    assert from_file(word_level).text("hello world hello") == 3


@pytest.mark.parametrize(
    ("name", "data", "hint"),
    [
        ("tokenizer.json", b"{}", "no 'model'"),
        ("tokenizer.json", b'{"model": {"type": "XYZ"}}', "not a tokenizer.json"),
        ("o200k_base.tiktoken", b"YQ== 0\nYg== 1\n", "not every byte"),
        ("tokenizer.json", b"nonsense", "not a tokenizer.json"),
        ("mine.tiktoken", b"", "unknown encoding 'mine'"),
        ("o200k_base.tiktoken", b"@@@ x", "not a rank file"),
    ],
)
def test_a_bad_tokenizer_file_is_named(tmp_path: Path, name: str, data: bytes, hint: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=hint):
        from_file(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        from_file(str(tmp_path / "missing.json"))


def test_a_missing_library_names_the_install_command(word_level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'forgetless\[tokens\]'"):
        from_file(word_level)
