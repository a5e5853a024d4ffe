"""What the environment `recall` promises: the same seed the same episode, and nothing to be had but from memory."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.environments.recall import Recall
from forgetless.errors import ConfigError
from forgetless.identifiers import identifiers

FACT = re.compile(r"The code of the (\w+ \w+) is ([A-Z]\d{4})\.")
ASKED = re.compile(r"What is the code of the (\w+ \w+)\?")
CODE = re.compile(r"\b[A-Z]\d{4}\b")


def pages(environment: Recall, seed: int) -> list[str]:
    """All pages of an episode; the first question is open after them."""
    environment.start(seed)
    shown: list[str] = []
    while "What is the code" not in (seen := environment.step("next").observation):
        shown.append(seen)
    return shown


def answered(environment: Recall, seed: int, known: dict[str, str]) -> tuple[float, list[str]]:
    """What an agent earns that knows this much, and what it saw while it was asked; no code begins with J."""
    environment.start(seed)
    while "What is the code" not in (seen := environment.step("next").observation):
        pass
    earned, shown = 0.0, [seen]
    while True:
        (thing,) = ASKED.findall(shown[-1])
        step = environment.step(f"answer {known.get(thing, 'J9999')}")
        earned += step.reward
        shown.append(step.observation)
        if step.done:
            return earned, shown


episodes = st.tuples(st.integers(1, 24), st.integers(0, 30), st.integers(0, 12), st.integers(0, 80)).map(
    lambda sizes: Recall(sizes[0], -(-sizes[0] // 2) + sizes[1] + sizes[2], sizes[2], sizes[3])
)


@given(episodes, st.integers(0, 10**6))
@settings(max_examples=25)
def test_who_remembers_all_earns_all_and_who_remembers_nothing_earns_nothing(environment: Recall, seed: int) -> None:
    known = dict(FACT.findall(" ".join(pages(environment, seed))))
    earned, shown = answered(environment, seed, known)
    assert earned == pytest.approx(1)
    assert len(shown) == len(known) + 1
    assert not any(CODE.search(text) for text in shown)  # no question, no verdict shows a code
    assert answered(environment, seed, {})[0] == 0


@given(episodes, st.integers(0, 10**6))
@settings(max_examples=25)
def test_the_same_seed_is_the_same_episode(environment: Recall, seed: int) -> None:
    assert environment.start(seed) == environment.start(seed)
    assert pages(environment, seed) == pages(environment, seed)
    assert answered(environment, seed, {})[1] == answered(environment, seed, {})[1]


def test_the_default_is_long_and_its_codes_are_needed_late() -> None:
    environment = Recall()
    shown = pages(environment, 3)
    facts = [len(FACT.findall(page)) for page in shown]
    assert (sum(facts), len(shown)) == (16, 64)
    assert not any(facts[-16:])  # the distance
    assert set(facts) == {0, 2}


def test_distractors_have_more_numbers_of_the_same_form_and_use_them_again_and_again() -> None:
    shown = pages(Recall(), 5)
    notices = [page for page in shown if FACT.search(page)]
    reports = [page for page in shown if not FACT.search(page)]
    codes = {code for page in notices for _, code in FACT.findall(page)}
    numbers = Counter(number for page in reports for number in CODE.findall(page))
    assert not codes & set(numbers)
    assert all(identifiers(number) == [number] for number in (*codes, *numbers))
    assert min(numbers.values()) > 5  # while each code stands on one page
    assert all(sum(code in page for page in shown) == 1 for code in codes)
    dense = {len(CODE.findall(page)) for page in reports}
    assert min(dense) > 2 >= max(len(CODE.findall(page)) for page in notices)
    words = [len(page.split()) for page in shown]
    assert max(words) - min(words) < 12


def test_easy_settings_are_short() -> None:
    environment = Recall(codes=1, pages=1, distance=0, words=0)
    assert len(environment.start(0).task) < 400
    (page,) = pages(environment, 0)
    assert FACT.fullmatch(page)


def test_actions_are_read_leniently_and_what_is_none_is_told() -> None:
    environment = Recall(codes=2, pages=2, distance=1, words=0)
    environment.start(1)
    for action in ("", "read on", "answer A1234", "I would say next"):
        step = environment.step(action)
        assert (step.valid, step.reward, step.done) == (False, 0, False)
        assert "`next`" in step.observation
    for action in ("next", "`NEXT`", "I go on.\nAction: next"):
        assert environment.step(action).valid
    wrong = environment.step("next")
    assert not wrong.valid
    assert ASKED.search(wrong.observation)  # an open question is asked again
    assert environment.step("**answer:** A1234").valid
    assert environment.step("answer A1234\nnext").done
    over = environment.step("answer A1234")
    assert (over.valid, over.done, over.reward) == (False, True, 0)
    assert Recall().step("next").done  # one that has not begun


@pytest.mark.parametrize(
    "sizes",
    [
        {"codes": 0},
        {"codes": 5_000},
        {"pages": 10},
        {"distance": -1},
        {"words": -1},
        {"codes": 4, "pages": 3, "distance": 2},
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"must be|need"):
        Recall(**sizes)


@pytest.mark.parametrize("options", [{"codes": "abc"}, {"codes": 1.5}, {"pages": True}, {"words": None}])
def test_sizes_are_whole_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Recall(**options)
