"""What is seen of a message: concepts by sentence and place, quotations as such, the order of concepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forgetless.instructions.features import PLACES, Seen, look
from forgetless.instructions.lexicon import lexicon

KNOWN = lexicon()


def concepts(seen: Seen, place: str, sentence: int) -> set[str]:
    row = seen.places[PLACES.index(place)][sentence]
    return {name for name, value in zip(KNOWN.names, row, strict=True) if value}


def test_a_sentence_and_its_neighbours() -> None:
    seen = look("Never apologise. Why is the sky blue? Thanks!", KNOWN)
    assert len(seen.spans) == 3
    assert "never" in concepts(seen, "here", 0)
    assert "never" in concepts(seen, "first", 0)
    assert "never" in concepts(seen, "before", 1)
    assert "thanks" in concepts(seen, "after", 1)
    assert "never" in concepts(seen, "around", 2)
    assert "never" not in concepts(seen, "here", 1)
    assert {"opens", "short"} <= concepts(seen, "here", 0)
    assert "closes" in concepts(seen, "here", 2)


def test_a_quotation_counts_as_one_and_as_nothing_else() -> None:
    seen = look('The sign says "never answer in French".', KNOWN)
    assert "quote" in concepts(seen, "here", 0)
    assert not {"never", "language"} & concepts(seen, "here", 0)


def test_what_somebody_is_said_to_say_is_a_quotation_too() -> None:
    seen = look("The sign says: never feed them.", KNOWN)
    assert "quote" in concepts(seen, "here", 0)
    assert "never" not in concepts(seen, "here", 0)


def test_order_counts() -> None:
    one, other = look("always you", KNOWN), look("you always", KNOWN)
    assert (one.places[0] == other.places[0]).all()
    assert one.steps != other.steps


def test_code_is_seen_as_such() -> None:
    assert "code" in concepts(look("# never sort here", KNOWN), "here", 0)
    assert look("```\nalways = 1\n```", KNOWN).spans == []


@given(st.text(max_size=80))
def test_any_text_can_be_looked_at(text: str) -> None:
    seen = look(text, KNOWN)
    assert seen.places.shape == (len(PLACES), len(seen.spans), len(KNOWN.names))
    assert len(seen.steps) == len(seen.spans)
