"""Training an agent that rewrites its memory, with a tiny model: samples, resumption, and that it learns."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from forgetless.environments.recall import Recall  # noqa: E402
from forgetless.errors import ConfigError  # noqa: E402
from forgetless.training.actor import Actor  # noqa: E402
from forgetless.training.ccm import Settings, evaluate, train  # noqa: E402
from forgetless.training.demonstrations import Demonstration, forgetful, knowing  # noqa: E402
from forgetless.training.grpo import Terms  # noqa: E402
from forgetless.training.rollouts import BLOCK, play, split, student  # noqa: E402
from forgetless.training.start import imitate  # noqa: E402
from forgetless.training.starts import load_start, save_start  # noqa: E402
from forgetless.training.tiny import tiny  # noqa: E402
from forgetless.training.words import Words  # noqa: E402

pytestmark = pytest.mark.torch


def world() -> Recall:
    return Recall(codes=1, pages=2, distance=1, words=0)


def shown(seed: int) -> list[Demonstration]:
    return [*forgetful(world(), seed, 0.5, Random(seed)), *knowing(world(), seed)]


@pytest.fixture(scope="module")
def words() -> Words:
    return Words.of(one.prompt + one.reply for seed in range(40) for one in shown(seed))


def made(words: Words) -> Actor:
    return Actor(tiny(words, 0, width=32), words)


def test_words_read_what_they_were_made_of(words: Words) -> None:
    texts = [one.prompt + one.reply for seed in range(40) for one in shown(seed)]
    assert [words.decode(words.encode(text)) for text in texts] == texts
    code = words.encode(" Z9071")
    assert len(code) == 3
    assert words.decode([*code, words.end]) == " Z9071"
    assert words.decode(words.encode("zugzwang")) == "�"


def test_an_action_begins_behind_its_memory_block(words: Words) -> None:
    reply = [*words.encode(BLOCK.format("X") + "answer A1234"), words.end]
    place = split(reply, words)
    assert words.decode(reply[:place]) == BLOCK.format("X")
    assert words.decode(reply[place:]) == "answer A1234"
    bare = words.encode("answer A1234")
    assert split(bare, words) == len(bare)


def test_demonstrations_know_what_they_kept_and_no_more() -> None:
    all_of_it = list(forgetful(world(), 3, 0.0, Random(0)))
    none = list(forgetful(world(), 3, 1.0, Random(0)))
    told = list(knowing(world(), 3))
    assert all_of_it[-1].reply.endswith(told[-1].reply)
    thing, code = told[-1].reply.splitlines()[0].split(": ")
    assert told[-1].reply == f"{thing}: {code}\nanswer {code}"
    assert code != "UNKNOWN"
    assert f"code of the {thing} is {code}" in told[-1].prompt
    assert none[-1].reply == BLOCK.format("") + f"{thing}: UNKNOWN\nanswer UNKNOWN"
    assert told[-1].reply.split()[-1] in told[-1].prompt
    assert told[-1].reply.split()[-1] not in none[-1].prompt


class Reading(Actor):
    """An actor that writes what a script says, to see what is made of it."""

    def __init__(self, words: Words, replies: list[str]) -> None:
        self.tokenizer, self.replies = words, iter(replies)

    def sample(self, prompts: Any, *_: Any) -> Any:
        found = [[*self.tokenizer.encode(next(self.replies)), self.tokenizer.end] for _ in prompts]
        return found, [[-0.5] * len(reply) for reply in found]


def test_a_turn_is_a_sample_with_the_context_that_was_seen(words: Words) -> None:
    start = world().start(5)
    first, second = BLOCK.format("The code is the code") + "next", "next"
    replies = [first, second, BLOCK.format("x") + "answer what"]
    (played,) = play(Reading(words, replies), world, [5], turns=3, most=9, temperature=1.0, chance=torch.Generator())
    one, two, three = played.turns
    assert words.decode(one.prompt) == student(start.task, "", "")
    assert words.decode(one.reply[one.action :]) == "next"
    assert one.wrote
    page = world()
    page.start(5)
    seen = page.step("next").observation
    assert words.decode(two.prompt) == student(start.task, "The code is the code", seen)
    assert words.decode(two.teacher) == f"{start.task}\n\nnext\n{seen}\n"
    assert played.broken == 1  # the second has no memory block: what was known stays
    assert words.decode(three.prompt).count("The code is the code") == 1
    assert three.action == len(three.reply)  # no action of this world: nothing of it is distilled
    assert played.invalid == 1


def test_what_was_sampled_has_the_log_probability_that_it_is_scored_with(words: Words) -> None:
    actor = made(words)
    played = play(actor, world, [1, 2, 3], turns=4, most=12, temperature=0.7, chance=torch.Generator().manual_seed(1))
    turns = [turn for one in played for turn in one.turns]
    with torch.no_grad():
        found = actor.logps([turn.prompt + turn.reply for turn in turns], 0.7)
    for turn, row in zip(turns, found, strict=True):
        said = row[len(turn.prompt) : len(turn.prompt) + len(turn.reply)]
        assert torch.allclose(said, torch.tensor(turn.old), atol=1e-4)


SMALL = Settings(updates=4, groups=2, episodes=2, turns=3, reply=14, evaluate=2, held_out=2, keep=2)


def figures(lines: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_broken_run_goes_on_to_the_same_numbers(words: Words, tmp_path: Path) -> None:
    whole = figures(train(made(words), world, SMALL, tmp_path / "whole"))
    assert [line["update"] for line in whole] == [1, 2, 3, 4]
    assert "held_out_success" in whole[1]
    broken = train(made(words), world, SMALL, tmp_path / "broken")
    assert figures([next(broken) for _ in range(3)]) == whole[:3]
    broken.close()  # between two checkpoints
    assert figures(train(made(words), world, SMALL, tmp_path / "broken")) == whole
    lines = (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()
    assert figures(map(json.loads, lines)) == whole
    assert figures(train(made(words), world, SMALL, tmp_path / "broken")) == whole  # nothing is left to do


def test_other_settings_begin_anew(words: Words, tmp_path: Path) -> None:
    list(train(made(words), world, SMALL, tmp_path))
    other = Settings(updates=1, groups=1, episodes=2, turns=2, reply=4, held_out=2)
    assert len(list(train(made(words), world, other, tmp_path))) == 1


def test_another_start_begins_anew(words: Words, tmp_path: Path) -> None:
    first = figures(train(made(words), world, SMALL, tmp_path / "a"))
    other = Actor(tiny(words, 1, width=32), words)
    alone = figures(train(deepcopy(other), world, SMALL, tmp_path / "b"))
    assert alone != first
    assert figures(train(deepcopy(other), world, SMALL, tmp_path / "a")) == alone
    told = json.loads((tmp_path / "a" / "config.json").read_text("utf-8"))
    again = figures(train(deepcopy(other), world, SMALL, tmp_path / "a", {"turns": 3}))
    assert again == alone  # played again, since it was not the same start
    assert json.loads((tmp_path / "a" / "config.json").read_text("utf-8")) == {**told, "began_from": {"turns": 3}}


@pytest.mark.parametrize("file", ["metrics.jsonl", "checkpoint.pt"])
def test_a_damaged_run_is_named_and_left_alone(words: Words, tmp_path: Path, file: str) -> None:
    list(train(made(words), world, SMALL, tmp_path))
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:300])
    left = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"is damaged and can't go on .* delete its checkpoint\.pt"):
        list(train(made(words), world, SMALL, tmp_path))
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == left


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groups", 0),
        ("held_out", 0),
        ("temperature", 0.0),
        ("rate", float("nan")),
        ("exact", float("inf")),
        ("seed", 2**64),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be"):
        Settings(**{**vars_of(SMALL), name: value})


@pytest.fixture(scope="module")
def taught(words: Words) -> Any:
    """A model that has seen the form of a turn."""
    model = tiny(words, 0, width=32)
    stream = chain.from_iterable(forgetful(world(), seed, 1.0, Random(seed)) for seed in range(10**6))
    losses = list(imitate(model, words, stream, steps=60, rows=8, rate=5e-3))
    assert sum(losses[-8:]) < sum(losses[:8]) / 2  # eight batches: one may be of short turns alone
    return model


def test_the_first_weights_stay(words: Words, taught: Any, tmp_path: Path) -> None:
    actor = Actor(deepcopy(taught), words)
    with actor.first() as first:
        before = {name: value.clone() for name, value in first.state_dict().items()}
    cool = Settings(**{**vars_of(SMALL), "temperature": 0.2, "turns": 4})  # it does not know much
    lines = list(train(actor, world, cool, tmp_path))
    with actor.first() as first:
        assert all(torch.equal(value, before[name]) for name, value in first.state_dict().items())
    assert any(not torch.equal(value, before[name]) for name, value in actor.model.state_dict().items())
    assert {"kl", "gate", "lead", "distill"} <= lines[0].keys()
    assert 0 < lines[0]["gate"] < 1


def test_what_is_off_is_not_worked_out(words: Words, tmp_path: Path) -> None:
    plain = Settings(**{**vars_of(SMALL), "updates": 1, "terms": Terms(kl=0.0, distill=0.0)})
    (line,) = train(made(words), world, plain, tmp_path / "off")
    assert not {"kl", "gate"} & line.keys()


def vars_of(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__slots__}


def test_a_tiny_model_is_read_as_it_was_written(words: Words, tmp_path: Path) -> None:
    actor = made(words)
    about = {"environment": "recall", "options": {"codes": 1, "pages": 2, "distance": 1}, "turns": 3, "reply": 14}
    save_start(actor.model, words, tmp_path, about)
    begun = load_start(tmp_path)
    assert isinstance(begun.tokenizer, Words)
    assert begun.tokenizer.pieces == words.pieces
    assert begun.worlds().start(1) == Recall(codes=1, pages=2, distance=1).start(1)
    again = Actor(begun.model, begun.tokenizer)
    assert evaluate(again, world, SMALL) == evaluate(actor, world, SMALL)
    with pytest.raises(ConfigError, match="ccm-start"):
        load_start(tmp_path / "elsewhere")
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(ConfigError, match="is damaged"):
        load_start(tmp_path)
    (tmp_path / "start.json").write_text("{}", "utf-8")
    with pytest.raises(ConfigError, match=r"start\.json has no environment"):
        load_start(tmp_path)
