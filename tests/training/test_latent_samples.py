"""What the latent memory learns from is what was said, and hardly anything twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from forgetless.datasets.dialogues import Dialogue

pytest.importorskip("torch", reason="needs forgetless[local]")
pytest.importorskip("peft", reason="needs forgetless[local]")

from forgetless.models.local.network import Sample
from forgetless.training.latent_samples import CHANGED, ON, Texts
from tiny_latent import TEMPLATE

pytestmark = pytest.mark.torch

MANY = 300


def by_bytes() -> Any:
    """A tokenizer whose tokens are bytes, so that every text comes back as it was."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({name: at for at, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    found.chat_template = TEMPLATE
    return found


def said(chance: Random, many: int) -> str:
    """Sentences of words that hardly come twice."""
    words = (("".join(chance.choices("abcdeéfg", k=5)) for _ in range(chance.randint(2, 9))) for _ in range(many))
    return " ".join(" ".join(sentence) + "." for sentence in words)


def talks(many: int = 30) -> list[Dialogue]:
    chance = Random(0)
    turns = (tuple((said(chance, 3), said(chance, 12)) for _ in range(3)) for _ in range(many))
    return [Dialogue("made", f"{number:016x}", told) for number, told in enumerate(turns)]


READ = by_bytes()
TALKS = talks()
TEXTS = Texts.of(READ, TALKS)
EVERYTHING = [text for talk in TALKS for turn in talk.turns for text in turn]
CHANGE = re.compile(CHANGED.format(new="(\\w+)", old="(\\w+)"))


def draws(span: int) -> Iterator[tuple[str, Sample, Sample]]:
    for seed in range(MANY):
        again, on = TEXTS.draw(Random(seed), span)
        assert again.texts == on.texts
        yield READ.decode(again.texts[0]), again, on


def turns(sample: Sample) -> list[str]:
    """The texts of a sample's messages after the memory: the last turn, and its reply."""
    tokens = sample.tokens[max(at for at, number in enumerate(sample.tokens) if number < 0) + 1 :]
    return re.findall(r"(?:user|assistant) (.*?)</s>", READ.decode(tokens), re.DOTALL)


@pytest.mark.parametrize("span", [16, 60, 200])
def test_a_text_was_said_and_is_no_longer_than_asked(span: int) -> None:
    for text, again, _ in draws(span):
        assert 1 <= len(again.texts[0]) <= span
        assert any(text in one for one in EVERYTHING)


@pytest.mark.parametrize("span", [60, 200])
def test_what_is_said_again_is_the_text(span: int) -> None:
    for text, again, _ in draws(span):
        assert turns(again)[1] == text


def test_hardly_a_passage_is_seen_twice() -> None:
    passages = [text for text, _, on in draws(120) if not on.clear]
    assert len(set(passages)) > 0.9 * len(passages) > 0.6 * MANY


def test_a_passage_is_whole_sentences_where_one_ends_within_its_length() -> None:
    for text, _, on in draws(200):
        if not on.clear:
            assert text.endswith(".")
            assert any(one.startswith(text) or f". {text}" in one for one in EVERYTHING)


def test_what_comes_next_is_what_stands_after_the_passage_or_the_passage_with_a_word_changed() -> None:
    gone_on = changed = 0
    for text, _, on in draws(120):
        if on.clear:
            continue
        asked, answer = turns(on)
        if asked == ON and answer != text:
            gone_on += 1
            assert any(f"{text} {answer}" in one or text + answer in one for one in EVERYTHING)
        elif asked != ON:
            changed += 1
            (new, old), *_ = CHANGE.findall(asked)
            assert answer == re.sub(rf"\b{old}\b", new, text) != text
    assert gone_on > 50
    assert changed > 50


@pytest.mark.parametrize("reply", ["x", "one two", "é", "```\ncode\n```", "...", "word1 word2 word3"])
def test_any_reply_can_be_learnt_from(reply: str) -> None:
    texts = Texts.of(READ, [Dialogue("made", "0", ((reply, reply), (reply, "```x```")))])
    for seed in range(60):
        for sample in texts.draw(Random(seed), 4):
            assert sample.texts[0]
            assert any(label >= 0 for label in sample.labels)
