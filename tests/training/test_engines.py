"""What an engine's adapter adds to training: the same samples, advantages and loss in an engine's rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch")

from forgetless.environments.base import Start, Step  # noqa: E402
from forgetless.environments.recall import Recall  # noqa: E402
from forgetless.training.actor import Actor  # noqa: E402
from forgetless.training.demonstrations import forgetful  # noqa: E402
from forgetless.training.engines.episodes import ASK, Chat, episode, write_seeds  # noqa: E402
from forgetless.training.engines.layout import (  # noqa: E402
    action_mask,
    mini_batch,
    placed,
    teacher_row,
    turn_advantages,
)
from forgetless.training.grpo import Batch, Terms, objective  # noqa: E402
from forgetless.training.rollouts import BLOCK, play, shaped  # noqa: E402
from forgetless.training.words import Words  # noqa: E402

pytestmark = pytest.mark.torch


def world() -> Recall:
    return Recall(codes=1, pages=2, distance=1, words=0)


class Plain(Words):
    """Words without a chat around them."""

    def asked(self, text: str) -> list[int]:
        return self.encode(text)


class Scripted(Actor):
    """Says what it is told to, as an actor in this process."""

    def __init__(self, tokenizer: Any, replies: Sequence[str]) -> None:
        self.tokenizer, self.replies = tokenizer, iter(replies)

    def sample(self, prompts: Any, *_: Any) -> tuple[list[list[int]], list[list[float]]]:
        said = [[*self.tokenizer.encode(next(self.replies)), self.tokenizer.end] for _ in prompts]
        return said, [[-0.5] * len(one) for one in said]


def replies(seed: int) -> list[str]:
    return [one.reply for one in forgetful(world(), seed, 0.0, Random(0))]


@pytest.mark.parametrize("spoil", [None, 0, 1])
def test_an_engine_s_episode_is_the_one_that_is_played_here(spoil: int | None) -> None:
    said = replies(3)
    if spoil is not None:
        said[spoil] = "no memory and no action"
        said.append("answer A1111")
    words = Plain.of([*said, *(one.prompt for one in forgetful(world(), 3, 0.0, Random(0)))])
    here = play(Scripted(words, said), world, [3], turns=len(said), most=99, temperature=1.0, chance=torch.Generator())[
        0
    ]
    script = Scripted(words, said)

    async def generate(prompt: list[int]) -> tuple[list[int], list[float]]:
        told, logps = script.sample([prompt])
        return told[0], logps[0]

    there = asyncio.run(episode(world(), 3, generate, words, turns=len(said), longest=10_000))  # type: ignore[arg-type]
    assert there == here
    assert len(here.turns) > 2
    assert any(turn.action < len(turn.reply) for turn in here.turns)


SAID = ["Count.\n<memory>\n\n</memory>\n0", "more more", "go", "fail"]


class Counting:
    """An environment that goes on for ever, and knows whether it was closed."""

    name = "counting@1"
    closed = 0

    def start(self, seed: int) -> Start:
        return Start("Count.", "0")

    def step(self, action: str) -> Step:
        if action == "fail":
            raise RuntimeError("broken")
        return Step("more " * 50)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("longest", "turns", "wanted"), [(10_000, 4, 4), (40, 4, 1), (1, 4, 0)])
def test_an_episode_ends_at_its_turns_or_before_a_context_that_is_too_long(
    longest: int, turns: int, wanted: int
) -> None:
    words, counting = Plain.of(SAID), Counting()

    async def generate(prompt: list[int]) -> tuple[list[int], list[float]]:
        assert len(prompt) <= longest
        return words.encode(BLOCK.format("") + "go"), []

    played = asyncio.run(episode(counting, 0, generate, words, turns=turns, longest=longest))  # type: ignore[arg-type]
    assert len(played.turns) == wanted
    assert counting.closed == 1


def test_an_environment_that_breaks_is_closed() -> None:
    words, counting = Plain.of(SAID), Counting()

    async def generate(_: list[int]) -> tuple[list[int], list[float]]:
        return words.encode(BLOCK.format("") + "fail"), []

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(episode(counting, 0, generate, words, turns=3, longest=999))  # type: ignore[arg-type]
    assert counting.closed == 1


def chat_tokenizer() -> Any:
    """A tokenizer of transformers over bytes, with a template as Qwen's."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({one: at for at, one in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{{ think | default('') }}{% endif %}"
    )
    return fast


def test_a_student_is_told_to_write_a_memory_and_its_teacher_is_not() -> None:
    fast = chat_tokenizer()
    chat = Chat(fast)
    told, plain = fast.decode(chat.asked("Söme task")), fast.decode(chat.encode("Söme task"))
    assert told == f"<|im_start|>system\n{ASK}<|im_end|>\n{plain}"
    assert plain == "<|im_start|>user\nSöme task<|im_end|>\n<|im_start|>assistant\n"
    assert "1,500 tokens" in ASK
    assert "{" not in ASK
    reply = [*fast.encode("go"), chat.end]
    assert chat.decode(reply) == "go"
    assert fast.decode(Chat(fast, think="off").encode("x")).endswith("assistant\noff")


def test_exact_success_is_worth_more_than_any_part_of_it() -> None:
    assert shaped(1.0, 10, 2) == shaped(0.1 + 0.2 + 0.7, 10, 2) == 10
    assert shaped(0.99, 10, 2) == pytest.approx(1.98)
    assert shaped(0.0, 10, 2) == 0


def test_a_file_of_seeds(tmp_path: Path) -> None:
    write_seeds(tmp_path / "seeds.jsonl", range(500, 503), "webshop")
    rows = [json.loads(line) for line in (tmp_path / "seeds.jsonl").read_text("utf-8").splitlines()]
    assert [row["extra_info"]["index"] for row in rows] == [500, 501, 502]
    assert {row["agent_name"] for row in rows} == {"ccm"}
    assert rows[0]["prompt"][0]["role"] == "user"


@given(
    st.lists(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 4)), min_size=1, max_size=5), min_size=1, max_size=4)
)
@settings(max_examples=25)
def test_every_turn_has_its_episode_s_advantage(groups: list[list[tuple[float, int]]]) -> None:
    rows = [
        (f"be_gin{at}_{number}_{turn}", reward)
        for at, group in enumerate(groups)
        for number, (reward, turns) in enumerate(group)
        for turn in range(turns)
    ]
    Random(0).shuffle(rows)
    found = turn_advantages([key for key, _ in rows], [reward for _, reward in rows])
    for (key, reward), gain in zip(rows, found, strict=True):
        group = [one for one, _ in groups[int(key.split("_")[1][3:])]]
        assert gain == pytest.approx((reward - fmean(group)) / (pstdev(group) + 1e-6), abs=1e-5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
@settings(max_examples=25)
def test_the_teacher_s_scores_come_back_to_the_action_s_places(reply: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(reply)))
    mask = torch.tensor(action_mask(len(reply), at))
    history, acted = teacher_row(torch.tensor(reply), mask, torch.tensor([7, 7]))
    assert history.tolist() == [7, 7]
    assert acted.tolist() == (reply[at:] or reply[-1:])
    scores = -1.0 - torch.arange(len(acted))
    assert placed(scores, mask).tolist() == [0.0] * at + [-1.0 - n for n in range(len(reply) - at)]


def test_a_mini_batch_has_the_objective_s_terms_and_its_parts_add_up() -> None:
    g = torch.Generator().manual_seed(0)
    near = lambda: -torch.rand(6, 8, generator=g, dtype=torch.float64)  # noqa: E731
    logps, said = near().requires_grad_(), torch.ones(6, 8, dtype=torch.int64)
    said[2, 5:] = 0
    acted = said.clone()
    acted[:, :3] = 0
    gains = torch.randn(6, generator=g, dtype=torch.float64)
    rows = {
        "response_mask": said,
        "action_mask": acted,
        "old_log_probs": near(),
        "ref_log_prob": near(),
        "teacher_log_probs": near(),
        "advantages": gains[:, None] * said,
    }
    terms = Terms(distill=0.5, kl=0.2)
    names = ("old_log_probs", "ref_log_prob", "teacher_log_probs")
    totals = float(said.sum()), float(acted.sum())
    wanted, _ = objective(
        logps, Batch(*(rows[one] for one in names), gains, said.double(), acted.double(), *totals), terms
    )
    parts = [
        objective(logps[at], mini_batch({name: row[at] for name, row in rows.items()}, *totals), terms)[0]
        for at in (slice(0, 1), slice(1, 6))
    ]
    assert sum(parts).item() == pytest.approx(wanted.item(), abs=1e-12)
    bare = mini_batch(
        {name: rows[name] for name in ("response_mask", "action_mask", "old_log_probs", "advantages")}, 1, 1
    )
    assert bare.reference is bare.teacher is None
