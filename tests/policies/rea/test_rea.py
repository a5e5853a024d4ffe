"""REA in text: user words stay, replies by how near they are to the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forgetless import ConfigError, compact, load_policy

LONG = (
    "It was a long way and the road was good. We saw nothing that day but sheep. The inn had 12 rooms, at Elm St 9-B. "
)


class Given:
    """A similarity that reads its number from the text; 0 where there is none."""

    name = "given"

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        return [float(text.rpartition("#")[2].split()[0]) if "#" in text else 0.0 for text in texts]


def talk(
    *near: float, last: str = "Where was the inn with the most rooms of all, and what did it cost a night?"
) -> Any:
    messages: list[dict[str, Any]] = []
    for number, value in enumerate(near):
        messages.append({"role": "user", "content": f"What about day {number}?"})
        messages.append({"role": "assistant", "content": f"{LONG * 2}#{value}"})
    return [*messages, {"role": "user", "content": last}]


def forms(done: Any) -> list[str]:
    return [entry.form for entry in done.ledger]


def policy(**options: Any) -> Any:
    return load_policy("rea", near=Given(), thresholds=(0.3, 0.7), **options)


def test_three_forms_by_two_thresholds_both_ends_in_the_middle() -> None:
    done = compact(talk(0.1, 0.3, 0.5, 0.7, 0.9, 0.29), budget=10**6, policy=policy(replies="paper"))
    assert forms(done)[1::2] == ["omitted", "compressed", "compressed", "compressed", "raw", "omitted"]
    assert set(forms(done)[::2]) == {"raw"}
    assert [entry.score for entry in done.ledger][1::2] == [0.1, 0.3, 0.5, 0.7, 0.9, 0.29]
    short = done.messages[2]["content"]
    assert "The inn had 12 rooms, at Elm St 9-B." in short
    assert "[…]" in short


def test_the_last_turn_is_never_left_out_and_raw_where_the_question_points_back() -> None:
    assert forms(compact(talk(0.1, 0.1), budget=10**6, policy=policy()))[1::2] == ["omitted", "compressed"]
    for last in ("List them in the order they appear", "the second one, please", "接着说那个"):
        assert forms(compact(talk(0.1, 0.1, last=last), budget=10**6, policy=policy()))[1::2] == ["omitted", "raw"]


def test_ablations_keep_all_replies_or_none() -> None:
    assert set(forms(compact(talk(0.1, 0.9), budget=10**6, policy=policy(replies="preserve")))) == {"raw"}
    assert forms(compact(talk(0.1, 0.9), budget=10**6, policy=policy(replies="abandon")))[1::2] == ["omitted"] * 2


ORDER = {"raw": 2, "compressed": 1, "omitted": 0}


@pytest.mark.parametrize("replies", ["bands", "paper", "preserve"])
def test_under_pressure_replies_that_are_not_near_give_way_first_the_least_similar_before_others(replies: str) -> None:
    messages = talk(0.5, 0.35, 0.6, 0.45)
    total = compact(messages, budget=10**6, policy="full").tokens
    for share in (0.9, 0.7, 0.5, 0.3, 0.2):
        done = compact(messages, budget=int(total * share), policy=policy(replies=replies))
        kept = sorted((entry.score or 0.0, ORDER[entry.form]) for entry in done.ledger[1::2])
        assert [form for _, form in kept] == sorted(form for _, form in kept)
        assert set(forms(done)[::2]) == {"raw"}
        assert done.tokens <= done.budget


def test_what_is_near_outlives_user_words_that_are_not_and_these_replies_that_are_not() -> None:
    messages = talk(0.5, 0.9, 0.6, 0.4, last="And then?")
    for n in range(0, 8, 2):
        messages[n]["content"] = "What about this day, as far as you know, and all that was said of it? " + f"#{n / 20}"
    gone: list[int] = []
    for budget in range(compact(messages, budget=10**6, policy="full").tokens, 12, -2):
        done = compact(messages, budget=budget, policy=policy(replies="paper"))
        gone += [entry.unit for entry in done.ledger if entry.form == "omitted" and entry.unit not in gone]
        assert done.messages[0]["role"] == "user"
    assert gone[:3] == [7, 1, 5], "replies that are not near: 0.4, 0.5, 0.6"
    assert set(gone[3:6]) == {0, 4, 6}, "user words but those that the reply that is near answers"
    assert gone[6:] in ([2, 3], [3, 2])


def test_by_words_it_finds_what_is_asked() -> None:
    messages = talk(0, 0, 0)
    messages[3]["content"] = "The ferry to Aland costs 45 euros and leaves at 7 from pier nine. " + LONG
    messages[-1]["content"] = "What does the ferry to Aland cost?"
    done = compact(messages, budget=10**6, policy="rea")
    near = [entry.score or 0.0 for entry in done.ledger][1::2]
    assert near[1] > 0.4 > max(near[0], near[2])
    assert "45 euros" in str(done.messages)


@pytest.mark.parametrize(
    "options", [{"thresholds": (0.8, 0.2)}, {"replies": "some"}, {"near": "cosine"}, {"near": Given()}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        load_policy("rea", **options)


def test_a_similarity_may_be_any_function() -> None:
    said: list[dict[str, Any]] = []
    for turn in range(12):
        said += [{"role": "user", "content": f"Question {turn}?"}, {"role": "assistant", "content": "word " * 40}]
    said.append({"role": "user", "content": "And now?"})
    done = compact(said, budget=400, policy="rea", near=lambda texts, _: [0.0] * len(texts), thresholds=[0.1, 0.4])
    assert done.tokens <= 400
    with pytest.raises(ConfigError, match="thresholds"):
        compact(said, budget=400, policy="rea", near=lambda texts, _: [0.0] * len(texts))
    with pytest.raises(ConfigError, match="similarity"):
        compact(said, budget=400, policy="rea", near=5)
    with pytest.raises(ConfigError, match="compress"):
        compact(said, budget=400, policy="rea", compress=5)
