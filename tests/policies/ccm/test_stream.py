"""Memory blocks taken out of a stream: wherever it is cut, nothing of a memory goes on and nothing else is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forgetless.policies.ccm.blocks import Block, Taker
from forgetless.policies.ccm.field import Field
from forgetless.policies.ccm.stream import SPAN, Stream

TOKENS = [
    "<memory>", "</memory>", "<memory_edit>", "</memory_edit>", "<think>", "</think>", "<", "<mem", "</", "`", "``",
    "```", "~~~", "\n", "\n\n", " ", "   ", "word", "é", "👩‍👧", "x" * 90,
]  # fmt: skip
texts = st.lists(st.sampled_from(TOKENS), max_size=16).map("".join)

plain = st.sampled_from(["ls -la\n", "The <answer> is 4 < 5.\n", "line\n\nline\n", "é 👩‍👧\n"])
code = st.sampled_from(
    [
        "```\n<memory>\nno\n</memory>\n```\n",
        "~~~~ text\n<memory>no</memory>\n~~~\n~~~~\n",
        "Write `<memory>` and `` </memory> ` `` so.\n",
        "a ``` <memory>no</memory> ``` b\n",
    ]
)
memory = st.sampled_from(["", "\n", "\nkey=7\n", "\n```\ncode\n", "<", "</mem", "`", "\n\n<memory\n"])
block = st.tuples(st.sampled_from([("memory", "whole"), ("memory_edit", "edit")]), memory)


def taken(taker: Taker, pieces: Sequence[str], cut: bool | None = False, late: bool = False) -> str:
    said = "".join(map(taker.feed, pieces))
    return said + (taker.end(None) if late else "") + taker.end(cut)


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(ends)]


@given(texts, st.lists(st.integers(0, 500), max_size=6), st.booleans())
@example("<memory>a</memory>\n\n  b", [3], False)
def test_it_does_not_matter_where_a_text_is_cut(text: str, places: Sequence[int], off: bool) -> None:
    whole, pieces, single, late = Stream(), Stream(), Stream(), Stream()
    visible = taken(whole, [text], off)
    assert taken(pieces, cut(text, places), off) == taken(single, list(text), off) == visible
    assert taken(late, [text], off, late=True) == visible, "nor whether it is known later that it was cut off"
    assert pieces.blocks == single.blocks == late.blocks == whole.blocks
    assert pieces.broken == single.broken == late.broken == whole.broken


@given(texts)
def test_of_a_reply_that_was_cut_off_the_open_block_is_gone_and_nothing_else(text: str) -> None:
    ended, cut_off, told = Stream(), Stream(), Stream()
    visible, shorter = taken(ended, [text]), taken(cut_off, [text], cut=True)
    assert visible.startswith(shorter)
    assert cut_off.broken == min(1, ended.broken)
    early = taken(told, [text], None)
    assert told.open == bool(ended.broken)
    assert early == shorter, "what is held back is the open block"
    if not ended.broken:
        assert (shorter, cut_off.blocks) == (visible, ended.blocks)


@given(texts)
def test_all_of_a_text_goes_on_or_is_in_a_block(text: str) -> None:
    taker = Stream()
    visible = taken(taker, [text])
    if not taker.blocks and not taker.broken:
        assert visible == text

    def bare(said: str) -> str:
        return "".join(said.split())

    blocks = sum(len(bare(f"<{name}>{held}</{name}>")) for name, held in _named(taker.blocks))
    lost = len(bare(text)) - len(bare(visible)) - blocks
    assert taker.broken * len("<memory>") <= lost <= taker.broken * len("<memory_edit>"), "but for the tags left open"


def _named(blocks: Sequence[Block]) -> list[tuple[str, str]]:
    return [("memory" if one.kind == "whole" else "memory_edit", one.text) for one in blocks]


@given(st.lists(st.one_of(plain, code, block), max_size=6), st.lists(st.integers(0, 500), max_size=4))
def test_blocks_are_taken_and_tags_in_code_are_text(
    said: list[str | tuple[tuple[str, str], str]], places: list[int]
) -> None:
    text = "".join(one if isinstance(one, str) else f"<{one[0][0]}>{one[1]}</{one[0][0]}>\n" for one in said)
    taker = Stream()
    visible = taken(taker, cut(text, places))
    assert visible == "".join(one for one in said if isinstance(one, str))
    assert taker.blocks == [Block(one[0][1], one[1]) for one in said if not isinstance(one, str)]  # type: ignore[arg-type]
    assert not taker.broken


@pytest.mark.parametrize(
    ("text", "visible", "broken"),
    [
        ("<memory>\nkey=7\nls", "\nkey=7\nls", 1),
        ("<memory>a<memory_edit>b</memory_edit>c", "ac", 1),
        ("ls </memory>", "ls </memory>", 0),
        ("a ` <memory>b</memory>\nc", "a ` c", 0),
        ("```\n<memory>b</memory>", "```\n<memory>b</memory>", 0),
        ("<think>a <memory> block</think><memory>b</memory>c", "<think>a <memory> block</think>c", 0),
        ("a<memory>b</memory> c", "a c", 0),
        ("\n\n<memory>b</memory>\n  c", "  c", 0),
    ],
)
def test_what_is_no_block_goes_on(text: str, visible: str, broken: int) -> None:
    taker = Stream()
    assert taken(taker, list(text)) == visible
    assert taker.broken == broken


@pytest.mark.parametrize("end", range(len("<memory>"), len("<memory>\nkey=7\n</memory>")))
def test_a_block_that_is_cut_off_is_dropped_wherever_that_is(end: int) -> None:
    taker = Stream()
    assert taken(taker, ["ls\n", "<memory>\nkey=7\n</memory>"[:end]], cut=True) == "ls\n"
    assert (taker.blocks, taker.broken, taker.open) == ([], 1, False)


def test_little_is_held_back() -> None:
    taker = Stream()
    assert taker.feed("one two <") == "one two "
    assert taker.feed("b> three") == "<b> three"
    assert taker.feed(" don`t") == " don"
    assert taker.feed("x" * SPAN) == "`t" + "x" * SPAN


OBJECT = '{"analysis": "a {b}", "context_window": "key=7\\n\\"x\\"", "commands": [{"keystrokes": "ls\\n"}]}'


@pytest.mark.parametrize(
    ("text", "visible", "blocks"),
    [
        (OBJECT, '{"analysis": "a {b}", "commands": [{"keystrokes": "ls\\n"}]}', [("whole", 'key=7\n"x"')]),
        ('so: {x} {"context_window": "a"} end', "so: {x} {} end", [("whole", "a")]),
        ('{"a": 1, "context_window": "b"}', '{"a": 1}', [("whole", "b")]),
        ('{"a":1,"context_window_edit":["- c"],"context_window":""}', '{"a":1}', [("edit", "- c"), ("whole", "")]),
        ('{"context_window": "raw\nline", "a": 1.50}', '{"a": 1.50}', [("whole", "raw\nline")]),
        ('{"context_window": {"k": "ü"}, "a": 1}', '{"a": 1}', [("whole", '{"k": "ü"}')]),
        ('{"context_window": "a", "commands": [', '{"commands": [', [("whole", "a")]),
        ('{"a": 1}', '{"a": 1}', []),
        ("no object", "no object", []),
    ],
)  # fmt: skip
def test_the_field_of_an_object_is_taken_and_the_rest_stays_as_it_is_spelt(
    text: str, visible: str, blocks: list[tuple[str, str]]
) -> None:
    taker = Field()
    assert taken(taker, list(text)) == visible
    assert taker.blocks == [Block(*one) for one in blocks]  # type: ignore[arg-type]
    assert not taker.broken


@pytest.mark.parametrize(
    ("text", "visible", "blocks", "broken"),
    [
        ('{"a": 1, "context_window": "key', '{"a": 1, ', [], 1),
        ('{"context_window": ', "{", [], 1),
        ('so {x}: {"a": "{", "context_window" : "key=\\"7', 'so {x}: {"a": "{", ', [], 1),
        ('{"a": "x" y", "context_window": "key', '{"a": "x" y", ', [], 1),
        ('{"context_window": "he said "no" to', "{", [], 1),
        ('{"context_window_edit": "- a", "b": 1, "context_window": "key', '{"b": 1, ', [("edit", "- a")], 1),
        ('{"context_window": "a", "commands": [{"k', '{"commands": [{"k', [("whole", "a")], 0),
        ('{"a": "the \\"context_window\\": ', '{"a": "the \\"context_window\\": ', [], 0),
        ('{"a": 1, "context_win', '{"a": 1, "context_win', [], 0),
    ],
)
def test_an_object_that_is_cut_off_in_its_memory_goes_on_up_to_there(
    text: str, visible: str, blocks: list[tuple[str, str]], broken: int
) -> None:
    for late in (False, True):
        taker = Field()
        assert taken(taker, list(text), cut=True, late=late) == visible
        assert taker.blocks == [Block(*one) for one in blocks]  # type: ignore[arg-type]
        assert (taker.broken, taker.open) == (broken, False)


def test_a_value_that_a_quote_ends_too_early_is_no_memory() -> None:
    taker, text = Field(), '{"context_window": "he said "no" to it", "commands": []}'
    assert taken(taker, [text]) == text
    assert (taker.blocks, taker.broken) == ([], 1)


def test_a_field_that_cannot_be_read_is_counted_and_no_text_is_lost() -> None:
    taker = Field()
    text = '{"a": 1, "context_window": "never ends'
    assert taken(taker, [text]) == text
    assert (taker.blocks, taker.broken) == ([], 1)
