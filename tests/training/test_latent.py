"""Training the latent memory: what learns, what is drawn, resumption, and that facts pass through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("peft", reason="needs peft")

from forgetless.datasets.dialogues import Dialogue, Exchange  # noqa: E402
from forgetless.errors import ConfigError  # noqa: E402
from forgetless.models.local.chat import MEMORY, numbers  # noqa: E402
from forgetless.models.local.network import IGNORED, Lora, Network, Sample, Shape, shares  # noqa: E402
from forgetless.training.latent import Settings, train  # noqa: E402
from forgetless.training.latent_answers import Answers, ask  # noqa: E402
from forgetless.training.latent_measure import FORMS, measure, summary  # noqa: E402
from forgetless.training.latent_samples import Texts, clipped, exchange  # noqa: E402
from tiny_latent import backbone, tokenizer  # noqa: E402

pytestmark = pytest.mark.torch

LORA = Lora(rank=2, alpha=4, dropout=0.1)
SHAPE = Shape(slots=2, most=32, compress=LORA, generate=LORA)
SMALL = Settings(shape=SHAPE, spans=((2, (4,)), (2, (8, 16))), answers=2, span=8, draws=2, parts=2, keep=2)


def words(chance: Random, many: int) -> str:
    return " ".join(f"w{chance.randrange(60)}" for _ in range(many))


def talks(many: int = 12) -> list[Dialogue]:
    chance = Random(0)
    return [
        Dialogue("made", f"{number:016x}", tuple((words(chance, 5), words(chance, 30 - 9 * turn)) for turn in range(3)))
        for number in range(many)
    ]


def network(start: Any = "pooled", shape: Shape = SHAPE) -> Network:
    torch.manual_seed(0)
    return Network(backbone(), replace(shape, start=start))


def sources(made: Network, folder: Path) -> tuple[Any, Any]:
    read = tokenizer()
    asked = list(ask(made, read, talks(), many=3, span=8, out=folder))
    return Texts.of(read, talks()).draw, Answers(read, talks(), asked).draw


def figures(lines: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def grown(made: Network, kind: str) -> list[float]:
    """The largest gradient of each tensor of a kind."""
    named = [(name, value) for name, value in made.named_parameters() if kind in name]
    return [0.0 if value.grad is None else float(value.grad.abs().max()) for _, value in named]


@pytest.mark.parametrize("start", ["plain", "pooled"])
def test_one_step_reaches_both_adapters_and_the_memory(start: str) -> None:
    made = network(start).train()
    with torch.no_grad():
        made.project.add_(0.1)  # at zero it lets no gradient through to the hidden states
        for name, value in made.named_parameters():
            if "lora_B" in name:
                value.add_(0.01)  # as at zero these do not to their other factor
    made([Sample(((6, 7, 8),), (MEMORY, 9, 10), (9, 10))]).backward()
    assert all(value > 0 for kind in ("compress", "generate") for value in grown(made, f"lora_A.{kind}"))
    assert all(value > 0 for kind in ("compress", "generate") for value in grown(made, f"lora_B.{kind}"))
    assert min(grown(made, "rows")) > 0
    if start == "pooled":
        assert min(float(value.grad.abs().max()) for value in (made.project, made.count, made.weigh)) > 0
    frozen = [value for name, value in made.model.named_parameters() if ".lora_" not in name]
    assert all(value.grad is None for value in frozen)


def test_what_learns_is_in_full_precision_on_a_backbone_in_half() -> None:
    made = Network(backbone().to(torch.bfloat16), SHAPE).train()
    assert {value.dtype for value in made.trained()} == {torch.float32}
    loss = made([Sample(((6, 7, 8),), (MEMORY, 9, 10), (9, 10))])
    loss.backward()
    assert loss.dtype == torch.float32
    assert max(grown(made, "lora_B.compress") + grown(made, "lora_B.generate")) > 0


def test_a_loss_is_of_the_labels_alone_whatever_stands_beside_it() -> None:
    made = network().eval()
    one = Sample(((6, 7, 8),), (11, MEMORY, 9, 10, 12), (9, IGNORED, 12))
    long = Sample((tuple(range(6, 20)),), (MEMORY, *range(20, 40)), tuple(range(20, 40)))
    with torch.no_grad():
        memories = made.compress([one.texts[0], long.texts[0]])
        (alone,) = made.losses([one], [[memories[0]]])
        beside, other = made.losses([one, long], [[memories[0]], [memories[1]]])
    assert (len(alone), len(other)) == (2, 20)
    assert torch.allclose(alone, beside, atol=1e-5)


def test_a_sample_in_clear_teaches_what_the_backbone_guesses_too() -> None:
    made = network().eval()
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "lora_B" in name:
                value.add_(0.05)
    text, labels = (6, 7, 8), (9, IGNORED, 12)
    one = Sample((text,), (11, MEMORY, 9, 10, 12), labels, (11, *text, 9, 10, 12))
    with torch.no_grad():
        inputs = made.inputs(one.tokens, list(made.compress([text])))
        made.use("generate")
        guessed = torch.log_softmax(made.model(inputs_embeds=inputs[None]).logits[0, [-4, -2]], -1)
        with made.model.disable_adapter():
            taught = torch.softmax(made.model(torch.tensor([one.clear])).logits[0, [-4, -2]], -1)
        wanted = -(guessed[[0, 1], [9, 12]] + (taught * guessed).sum(-1)).mean() / 2
        assert abs(float(made([one])) - float(wanted)) < 1e-5
        assert abs(float(made([replace(one, clear=())])) + float(guessed[[0, 1], [9, 12]].mean())) < 1e-5


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40), st.integers(1, 9))
def test_shares_are_of_equal_weight_and_in_order(weights: list[float], slots: int) -> None:
    given_ = torch.tensor(weights, dtype=torch.float64)
    given_ = given_ / given_.sum()
    found = shares(given_, slots)
    assert found.shape == (slots, len(weights))
    assert torch.allclose(found.sum(1), torch.ones(slots, dtype=torch.float64))
    assert torch.allclose(found.sum(0), given_ * slots)
    places = found @ torch.arange(len(weights), dtype=torch.float64)
    assert all(before <= after + 1e-9 for before, after in pairwise(places.tolist()))


def test_samples_hold_what_they_say() -> None:
    read, texts = tokenizer(), Texts.of(tokenizer(), talks())
    for seed in range(30):
        again, on = texts.draw(Random(seed), 8)
        assert again.texts == on.texts
        assert 0 < len(again.texts[0]) <= 8
        assert tuple(label for label in again.labels if label != IGNORED) == again.texts[0]
        assert not again.clear
        for one in (again, on):
            assert one.tokens.count(MEMORY) == 1
            ends = one.tokens[-len(one.labels) :]
            assert all(label in (IGNORED, token) for label, token in zip(one.labels, ends, strict=True))
        assert any(label != IGNORED for label in on.labels)
        if on.clear:  # the same but for the text in the place of its memory
            at = on.tokens.index(MEMORY)
            assert on.clear == (*on.tokens[:at], *on.texts[0], *on.tokens[at + 1 :])
    found = Exchange("w1", "w2 w3", "w4 w5", "w6")
    sample = exchange(read, found, tuple(numbers(read, "w2 w3")))
    said = [label for label in sample.labels if label != IGNORED]
    assert said == numbers(read, "w4 w5 w6")
    assert exchange(read, found, (), content=None).tokens.count(MEMORY) == 0


def test_a_broken_run_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    made = network()
    whole = figures(train(made, sources(made, tmp_path / "a"), SMALL, tmp_path / "a"))
    assert [line["step"] for line in whole] == [1, 2, 3, 4, 5, 6]
    made = network()
    broken = train(made, sources(made, tmp_path / "b"), SMALL, tmp_path / "b")
    assert figures([next(broken) for _ in range(3)]) == whole[:3]
    broken.close()  # between two checkpoints
    made = network()
    assert figures(train(made, sources(made, tmp_path / "b"), SMALL, tmp_path / "b")) == whole
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    assert figures(map(json.loads, lines)) == whole
    lines = figures(train(made := network(), sources(made, tmp_path / "b"), SMALL, tmp_path / "b", learns_from="more"))
    assert lines == whole  # begun anew, since it was not on the same data
    assert json.loads((tmp_path / "b" / "config.json").read_text("utf-8"))["learns_from"] == "more"
    other = replace(SMALL, spans=((1, (4,)),), answers=0)
    assert len(list(train(network(), sources(made, tmp_path / "b"), other, tmp_path / "b"))) == 1


def test_accelerate_with_one_process_gives_the_same_numbers(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    made = network()
    plain = figures(train(made, sources(made, tmp_path / "a"), SMALL, tmp_path / "a"))
    made = network()
    accelerator = accelerate.Accelerator(cpu=True)
    found = figures(train(made, sources(made, tmp_path / "b"), SMALL, tmp_path / "b", accelerator=accelerator))
    assert found == plain


def test_answers_are_those_of_the_backbone_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, read = network(), tokenizer()
    with torch.no_grad():
        for parameter in made.trained():
            parameter.add_(1.0)  # adapters that would say something else
    found = list(ask(made, read, talks(), many=5, span=8, out=tmp_path))
    bare = list(ask(network(), read, talks(), many=5, span=8, out=tmp_path / "bare"))
    assert found == bare
    monkeypatch.setattr(made.model.get_base_model(), "generate", None)  # nothing is asked again
    assert list(ask(made, read, talks(), many=5, span=8, out=tmp_path)) == found
    with pytest.raises(TypeError):  # other dialogues are: their answers are not those of the file
        list(ask(made, read, [*talks(11), *talks(1)], many=5, span=8, out=tmp_path))
    sample = Answers(read, talks(), found).draw(Random(0), 8)[0]
    assert len(sample.texts) == sample.tokens.count(MEMORY) >= 1


def test_the_measure_tells_the_forms_apart(tmp_path: Path) -> None:
    made, read = network(), tokenizer()
    records = list(measure(made, read, talks(), 32, most=6, whole=True))
    assert len(records) == 6
    assert all(record["reply"] <= 32 for record in records)
    assert all(len({record[form] for form in FORMS}) == len(FORMS) for record in records)
    told = summary(records)
    full, right, other = (sum(record[form] for record in records) for form in ("full", "right", "other"))
    assert told["way"] == pytest.approx((other - right) / (other - full), abs=1e-4)
    assert told["below_other_low"] <= told["below_other"] <= told["below_other_high"]
    cut = list(measure(made, read, talks(), 8, most=6, whole=False))
    assert {record["reply"] for record in cut} == {8}
    with pytest.raises(ConfigError, match="too few"):
        list(measure(made, read, talks(1), 32, most=6, whole=True))


KEYS, VALUES, FACTS = range(6, 14), range(20, 36), 1
FACT_STEPS = 400


def facts(chance: Random, _: int) -> Sequence[Sample]:
    """A text of keys with values, and a question for each key."""
    pairs = [(key, chance.choice(VALUES)) for key in chance.sample(KEYS, FACTS)]
    text = tuple(number for pair in pairs for number in pair)
    return [Sample((text,), (MEMORY, key, value), (value,)) for key, value in pairs]


def answered(made: Network, seeds: range, shift: int = 0) -> Iterator[bool]:
    """Whether the likeliest token is the fact, with the memory of the text that is so many seeds on."""
    with torch.no_grad():
        for seed in seeds:
            (memory,) = made.compress([facts(Random(f"held out {seed + shift}"), 0)[0].texts[0]])
            for sample in facts(Random(f"held out {seed}"), 0):
                yield next(made.said(made.inputs(sample.tokens[:-1], [memory]))) == sample.labels[0]


@pytest.mark.slow
def test_facts_pass_through_the_memory(tmp_path: Path) -> None:
    lora = Lora(rank=32, alpha=64, dropout=0.0)
    torch.manual_seed(0)
    shape = Shape(most=8, start="plain", compress=lora, generate=lora)
    made = Network(backbone(width=64, initializer_range=0.2), shape)
    settings = Settings(shape=shape, spans=((FACT_STEPS, (4,)),), answers=0, draws=16, parts=1, rate=5e-3, keep=10_000)
    list(train(made, (facts, facts), settings, tmp_path))
    made.eval()
    right, another = list(answered(made, range(100))), list(answered(made, range(100), shift=1_000))
    assert sum(right) / len(right) >= 0.95
    assert sum(another) / len(another) <= 0.25  # chance is one in 16


ALTERNATES = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<s>' + m['role'] + ' ' + m['content'] + '</s>' }}{% endfor %}"
)


def test_where_turns_must_alternate_a_message_left_out_is_an_empty_one() -> None:
    read = tokenizer()
    read.chat_template = ALTERNATES
    records = list(measure(network(), read, talks(), 30, most=4, whole=True))
    assert len(records) == 4
    assert all(record["omitted"] == record["none"] != record["right"] for record in records)


def test_what_is_cut_holds_whole_characters() -> None:
    class Bytes:
        def decode(self, tokens: Sequence[int]) -> str:
            return bytes(tokens).decode("utf-8", "replace")

    said = tuple("été".encode())
    assert clipped(Bytes(), said) == said
    assert clipped(Bytes(), said[:-1]) == said[:-2]
    assert clipped(Bytes(), said[1:-1]) == said[2:-2]


def test_an_answer_ends_with_any_token_that_ends_one(tmp_path: Path) -> None:
    made = network()
    (_, _, whole), *_ = ask(made, tokenizer(), talks(), many=1, span=8, out=tmp_path / "a")
    made.model.generation_config.eos_token_id = [2, whole[3]]
    (_, _, cut), *_ = ask(made, tokenizer(), talks(), many=1, span=8, out=tmp_path / "b")
    assert cut == whole[: whole.index(whole[3]) + 1]


def test_pieces_of_short_replies_have_something_after_them() -> None:
    texts = Texts.of(tokenizer(), talks())
    for seed in range(60):
        assert all(any(label != IGNORED for label in one.labels) for one in texts.draw(Random(seed), 40))


TOGETHER = """
import sys
from pathlib import Path
import torch
import test_latent as here
from forgetless.models.local.chat import MEMORY
from forgetless.models.local.network import Sample
from forgetless.training.latent import processes
settings = here.replace(here.SMALL, spans=((2, (8,)),), answers=0, draws=4)
with processes() as accelerator:
    same = accelerator.process_index == 0
    def draw(chance, span):
        text = (6, 7, 8) if same else tuple(chance.randrange(6, 60) for _ in range(5))
        return [Sample((text,), (MEMORY, 9, 10), (9, 10))]
    for start in ("plain", "pooled"):
        out = Path(sys.argv[1]) / start
        assert len(list(here.train(here.network(start), (draw, draw), settings, out, accelerator=accelerator))) == 2
assert not torch.distributed.is_initialized()
"""


def test_two_processes_learn_together_whatever_they_draw(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="needs accelerate")
    (tmp_path / "run.py").write_text(TOGETHER)
    here = Path(__file__).parent
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    path = f"{here}{os.pathsep}{here.parent}"
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [*command, tmp_path / "run.py", tmp_path], env=env, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
    assert {len((tmp_path / start / "metrics.jsonl").read_text().splitlines()) for start in ("plain", "pooled")} == {2}


def test_draws_that_processes_cannot_share_are_refused(tmp_path: Path) -> None:
    class Three:
        is_main_process, process_index, num_processes = True, 0, 3

        def prepare(self, *things: Any) -> Any:
            return things

    with pytest.raises(ConfigError, match="3 processes can't share the 2 draws"):
        next(train(network(), (lambda *_: [], lambda *_: []), SMALL, tmp_path, accelerator=Three()))
