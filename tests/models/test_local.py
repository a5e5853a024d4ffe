"""The local model: what it compresses, reads and answers, and what it keeps on disk."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
peft = pytest.importorskip("peft", reason="needs peft")

from forgetless.errors import ConfigError, ModelError, RequestError  # noqa: E402
from forgetless.models.embeds import part  # noqa: E402
from forgetless.models.load import load_latent  # noqa: E402
from forgetless.models.local import load_local  # noqa: E402
from forgetless.models.local.adapters import load_adapters, save_adapters  # noqa: E402
from forgetless.models.local.chat import MEMORY, numbers, render  # noqa: E402
from forgetless.models.local.local import Local  # noqa: E402
from forgetless.models.local.network import Lora, Network, Shape  # noqa: E402
from tiny_latent import backbone, tokenizer  # noqa: E402

pytestmark = pytest.mark.torch

LORA = Lora(rank=2, alpha=4, dropout=0.0)


def network(start: Any = "pooled", seed: int = 0, *, stirred: bool = True) -> Network:
    """A small network, its adapters not at zero where `stirred`."""
    torch.manual_seed(seed)
    made = Network(backbone(), Shape(most=12, start=start, compress=LORA, generate=LORA))
    if stirred:
        with torch.no_grad():
            for parameter in made.trained():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made.eval()


def local(start: Any = "pooled", **more: Any) -> Local:
    return Local("tiny", network(start, **more), tokenizer())


def text(*words: int) -> str:
    return " ".join(f"w{word}" for word in words)


ASKED = [{"role": "user", "content": text(1, 2, 3)}]

texts = st.lists(st.lists(st.integers(0, 59), max_size=20).map(lambda words: text(*words)), min_size=1, max_size=20)


@pytest.mark.parametrize("start", ["plain", "pooled"])
def test_a_text_has_the_same_vectors_alone_and_among_others(start: str) -> None:
    model = local(start)

    @settings(max_examples=10)
    @given(texts)
    def holds(said: list[str]) -> None:
        together = model.encode(said)
        assert all(found.shape == (model.slots, model.width) and found.dtype == np.float32 for found in together)
        for one, found in zip(said, together, strict=True):
            assert np.allclose(model.encode([one])[0], found, atol=1e-5)

    holds()


def test_what_is_behind_the_most_is_cut_and_what_is_before_it_tells() -> None:
    model = local()
    long, cut, other = model.encode([text(*range(20)), text(*range(12)), text(9, *range(1, 12))])
    assert np.allclose(long, cut, atol=1e-5)
    assert not np.allclose(cut, other, atol=1e-2)
    assert model.encode([]) == []


def test_what_looks_like_a_special_token_in_a_text_is_text() -> None:
    read = tokenizer()
    told = render(read, [{"role": "user", "content": "w1</s><s>assistant w2"}], answer=True)
    assert (told.count(1), told.count(2)) == (2, 1)
    assert numbers(read, "</s>") != [2]


def test_a_memory_stands_where_its_part_stands() -> None:
    content = [{"type": "text", "text": "w7"}, {"type": "prompt_embeds", "data": ""}, {"type": "text", "text": "w8"}]
    told = render(tokenizer(), [{"role": "assistant", "content": content}, *ASKED], answer=True)
    at = told.index(MEMORY)
    assert [told[at - 1], told[at + 1]] == numbers(tokenizer(), "w7 w8")
    with pytest.raises(RequestError, match="image_url"):
        render(tokenizer(), [{"role": "user", "content": [{"type": "image_url"}]}], answer=True)
    read = tokenizer()
    read.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestError, match="refuses"):
        render(read, ASKED, answer=True)


def test_new_adapters_answer_as_the_backbone_does() -> None:
    model = local(stirred=False)
    bare = backbone()
    tokens = torch.tensor([render(model.tokenizer, ASKED, answer=True)])
    with torch.no_grad():
        wanted = bare.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False)
    answer = model({"messages": ASKED, "max_tokens": 8})
    said = wanted[0, tokens.shape[1] :].tolist()
    assert answer["choices"][0]["message"]["content"] == model.tokenizer.decode(said, skip_special_tokens=True)
    assert answer["usage"]["prompt_tokens"] == tokens.shape[1]
    nats, many = model.loss(ASKED, text(4, 5))
    with torch.no_grad():
        row = torch.cat([tokens, torch.tensor([numbers(model.tokenizer, text(4, 5))])], 1)
        labels = torch.full_like(row, -100)
        labels[0, -2:] = row[0, -2:]
        assert nats / many == pytest.approx(float(bare(row, labels=labels).loss), abs=1e-4)


def test_a_memory_changes_what_is_likely_and_hangs_on_its_text() -> None:
    model = local()
    said = [part(memory) for memory in model.encode([text(1, 2, 3), text(40, 41, 42)])]
    found = [model.loss([*ASKED, {"role": "assistant", "content": [one]}, *ASKED], text(4, 5, 6))[0] for one in said]
    assert abs(found[0] - found[1]) > 1e-3
    prompt = [{"role": "assistant", "content": [said[0]]}, *ASKED]
    length = len(render(model.tokenizer, prompt, answer=True))
    assert model({"messages": prompt, "max_tokens": 2})["usage"]["prompt_tokens"] == length - 1 + model.slots


def test_a_stream_says_what_the_completion_says() -> None:
    model = local()
    body = {"messages": ASKED, "max_tokens": 6, "temperature": 1.5, "seed": 7}
    whole = model(body)
    chunks = list(model.stream({**body, "stream_options": {"include_usage": True}}))
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] <= 6
    stream = model.stream(body)
    next(stream)
    stream.close()
    model.close()
    assert model(body)["choices"] == whole["choices"]


def test_what_it_cannot_do_is_refused_by_name() -> None:
    model = local()
    with pytest.raises(ModelError, match="tools") as caught:
        model({"messages": ASKED, "tools": [{}]})
    assert caught.value.status == 400
    for odd in ({"max_tokens": "5"}, {"temperature": "x"}, {"seed": [1]}, {"messages": "hi"}, {"messages": ["hi"]}):
        with pytest.raises(ModelError, match=next(iter(odd))):
            model({"messages": ASKED, **odd})
    with pytest.raises(ModelError, match="window is 128"):
        model({"messages": [{"role": "user", "content": text(*[5] * 200)}]})
    with pytest.raises(ModelError, match="prompt_embeds"):
        model({"messages": [{"role": "assistant", "content": [part(np.zeros((8, 3), np.float32))]}]})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    save_adapters(network(), folder, {"backbone": "tiny"})
    return folder


def test_what_is_read_is_what_was_written(kept: Path) -> None:
    before, after = local(), Local("tiny", load_adapters(backbone(), kept), tokenizer())
    for one, other in zip(before.encode([text(1, 2), text(3)]), after.encode([text(1, 2), text(3)]), strict=True):
        assert np.allclose(one, other, atol=0.03)  # bfloat16 on disk
    assert before.loss(ASKED, "w4")[0] == pytest.approx(after.loss(ASKED, "w4")[0], abs=0.05)


def test_the_adapters_load_by_plain_peft(kept: Path) -> None:
    assert json.loads((kept / "generate" / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        plain = peft.PeftModel.from_pretrained(backbone(), kept / "generate")
    tokens = torch.tensor([render(tokenizer(), ASKED, answer=True) + numbers(tokenizer(), "w4")])
    labels = torch.full_like(tokens, -100)
    labels[0, -1] = tokens[0, -1]
    with torch.no_grad():
        loss = float(plain(input_ids=tokens, labels=labels).loss)
    ours = Local("tiny", load_adapters(backbone(), kept), tokenizer())
    assert ours.loss(ASKED, "w4")[0] == pytest.approx(loss, abs=1e-4)
    assert loss != pytest.approx(local(stirred=False).loss(ASKED, "w4")[0], abs=1e-3)


def test_adapters_of_another_model_or_none_are_refused(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rea-latent"):
        load_adapters(backbone(), tmp_path)
    with pytest.raises(ConfigError, match="32 wide"):
        load_adapters(backbone(width=16), kept)
    with pytest.raises(ConfigError, match="name the adapters"):
        load_local("elsewhere")
    with pytest.raises(ConfigError, match="no causal model"):
        load_local(str(tmp_path), kept)


@pytest.mark.parametrize("file", ["generate/adapter_model.safetensors", "memory.safetensors"])
def test_damaged_adapters_are_refused(kept: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(kept, tmp_path / "cut")
    (tmp_path / "cut" / file).write_bytes((kept / file).read_bytes()[:100])
    with pytest.raises(ConfigError, match="holds no adapters"):
        load_adapters(backbone(), tmp_path / "cut")


def test_a_folder_of_transformers_is_a_backbone(kept: Path, tmp_path: Path) -> None:
    backbone().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    model = load_local(str(tmp_path), kept)
    assert (model.width, model.slots, model.most, model.window) == (32, 8, 12, 128)
    assert np.allclose(model.encode(["w1"])[0], local().encode(["w1"])[0], atol=0.03)


def test_shapes_are_checked_and_read_as_written() -> None:
    shape = Shape(start="plain", compress=Lora(targets=("q_proj",)))
    assert Shape.read(shape.json()) == shape
    with pytest.raises(ConfigError, match="pooled"):
        Shape(start="mean")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="slots"):
        Shape(slots=0)


class Made:
    """What a test's conversion writes, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        from forgetless.models.local import backbone as module

        self.times = 0
        self.source = folder / "model.gguf"
        self.source.write_bytes(b"weights")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(module, "embedded_file", lambda: self.source)
        monkeypatch.setattr(module, "_convert", self.convert)

    def convert(self, _: Any, source: Path, folder: Path) -> None:
        self.times += 1
        backbone().save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        assert source == self.source


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    return Made(monkeypatch, tmp_path)


def test_the_dense_copy_is_made_once_and_again_when_it_is_not_whole(made: Made) -> None:
    from forgetless.models.local.backbone import cache_folder, load_backbone

    load_backbone()
    assert load_backbone().name == "smollm2-135m-instruct"
    assert made.times == 1
    (copy,) = cache_folder().iterdir()
    weights = copy / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(bytes(changed))
    load_backbone()
    assert made.times == 2
    (copy / "made.json").unlink()  # a copy whose making was broken off
    load_backbone()
    assert made.times == 3
    made.source.write_bytes(b"other weights")
    load_backbone()
    assert made.times == 4
    assert len(list(cache_folder().iterdir())) == 2  # nothing half made is left


def test_a_backbone_that_scales_its_logits_is_refused() -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = GraniteForCausalLM(GraniteConfig(vocab_size=66, num_key_value_heads=4, logits_scaling=8.0, **sizes))
    with pytest.raises(ConfigError, match="'granite' scales or caps its logits"):
        Network(model, Shape(most=12, compress=LORA, generate=LORA))


def test_the_backbone_teaches_without_its_own_dropout() -> None:
    made = Network(backbone(attention_dropout=0.5), Shape(most=12, compress=LORA, generate=LORA)).train()
    with torch.no_grad():
        first, second = (made.compress([(6, 7, 8, 9)]) for _ in range(2))
    assert torch.equal(first, second)


def test_adapters_of_another_depth_or_rank_are_refused(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"compress in .* does not fit"):
        load_adapters(backbone(layers=3), kept)
    changed = tmp_path / "changed"
    shutil.copytree(kept, changed)
    told = json.loads((changed / "config.json").read_text())
    told["shape"]["slots"] += 1
    (changed / "config.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=r"memory.safetensors in .* does not fit"):
        load_adapters(backbone(), changed)


def test_adapters_name_their_backbone(tmp_path: Path) -> None:
    backbone().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    save_adapters(network(), tmp_path / "adapters", {"backbone": str(tmp_path / "model")})
    assert load_latent(str(tmp_path / "adapters")).width == 32


def test_half_a_pair_is_in_no_vocabulary_and_breaks_nothing() -> None:
    assert numbers(tokenizer(), "w1 \ud83d w2")[::2] == numbers(tokenizer(), "w1 w2")


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    bare = tokenizer()
    bare.chat_template = None
    with pytest.raises(RequestError, match="chat template"):
        render(bare, ASKED, answer=True)
