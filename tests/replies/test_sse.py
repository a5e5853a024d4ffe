from __future__ import annotations

from itertools import pairwise

from anthropic._streaming import SSEDecoder
from hypothesis import given
from hypothesis import strategies as st

from forgetless.replies.sse import Event, Events, encode

PIECES = [
    "data: ", "data:", "data", "event: ", "event:ping", "id: 7", "retry: 5", ": a comment", ":", "\r", "\n", "\r\n",
    "\n\n", "\r\n\r\n", "\r\r", "é", "合同", "👩‍👩‍👧", '{"a": 1}', " ", "\ufeff", "\u2028", "\x00", "x" * 300, "[DONE]",
]  # fmt: skip

streams = st.lists(st.sampled_from(PIECES), max_size=30).map(lambda pieces: "".join(pieces).encode())


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def read(*chunks: bytes) -> list[Event]:
    events = Events()
    return [*(event for chunk in chunks for event in events.feed(chunk)), *events.rest()]


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.data) for event in events if event.data]


@given(st.one_of(streams, st.binary(max_size=200)), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stream_comes_back_byte_for_byte_however_it_is_cut(stream: bytes, places: list[int]) -> None:
    events = read(*cut(stream, places))
    assert b"".join(event.raw for event in events) == stream
    assert told(events) == told(read(stream)) == told(read(*(bytes([byte]) for byte in stream)))


@given(streams)
def test_events_are_those_that_an_sdk_reads(stream: bytes) -> None:
    # The SDK's decoder keeps a byte order mark, and it joins and ends lines as the standard has it.
    stream = stream.replace(b"\xef\xbb\xbf", b"") + b"\n\n"
    theirs = [(e.event or "", e.data) for e in SSEDecoder().iter_bytes(iter([stream])) if e.data]
    assert told(read(stream)) == theirs


@given(st.lists(st.tuples(st.sampled_from(["", "ping", "message_start"]), st.text()), max_size=6))
def test_what_was_encoded_is_read_back(written: list[tuple[str, str]]) -> None:
    stream = b"".join(encode(data, name) for name, data in written)
    lines = [(name, data.replace("\r\n", "\n").replace("\r", "\n")) for name, data in written]
    assert [(event.name, event.data) for event in read(stream)] == lines


def test_every_line_end_ends_a_line() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        lines = (b"event: a", b"data: 1", b"data:2", b"data", b"", b"data:  3", b"", b"")
        assert told(read(end.join(lines))) == [("a", "1\n2\n"), ("", " 3")]


def test_an_event_is_there_with_the_byte_that_ends_it() -> None:
    events = Events()
    assert events.feed(b"data: 1\r\n\r") == [Event("", "1", b"data: 1\r\n\r")]
    assert events.feed(b"\ndata: 2\n") == []
    assert events.feed(b"\n") == [Event("", "2", b"\ndata: 2\n\n")]
    assert events.rest() == []


def test_a_comment_is_passed_on_at_once() -> None:
    assert Events().feed(b": still here\n\n") == [Event("", "", b": still here\n\n")]


def test_the_last_event_needs_no_empty_line() -> None:
    for stream in (b"data: 1\n\ndata: 2", b"data: 1\n\ndata: 2\n", b"data: 1\n\ndata: 2\r"):
        events = Events()
        assert told(events.feed(stream)) == [("", "1")]
        assert events.rest() == [Event("", "2", stream[9:])]
        assert events.rest() == []


def test_a_byte_order_mark_may_open_a_stream_only() -> None:
    mark = "\ufeff".encode()
    assert told(read(mark[:1], mark[1:], b"data: 1\n\n" + mark + b"data: 2\n\n")) == [("", "1")]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert told(read(b"data: \xff\xc3\n\n")) == [("", "\ufffd\ufffd")]
    assert encode("a\ud83d") == b"data: a?\n\n"


def test_a_huge_event_in_small_chunks_is_one_event() -> None:
    stream = b"data: " + b"x" * 1_000_000 + b"\n\n"
    [event] = read(*(stream[at : at + 10] for at in range(0, len(stream), 10)))
    assert event.raw == stream
    assert len(event.data) == 1_000_000
