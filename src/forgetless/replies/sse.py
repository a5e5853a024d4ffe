"""Server-sent events: a stream of bytes cut into events without losing a byte, and events written.

After the HTML standard, section 9.2.6, but for one thing: a block that holds no data (a comment that keeps the
connection open, say) is an event too, with empty `data`, so that whoever passes a stream on can pass it on at once.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Event", "Events", "encode"]

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event.

    Attributes:
        name: empty where the stream gives none.
        data: its data lines, joined by newlines; empty when there is nothing to read in it.
        raw: its bytes as they came, the empty line that ends it included.
    """

    name: str
    data: str
    raw: bytes


class Events:
    """Cuts a stream into events. All that it gave out and `rest` together are the stream, byte for byte.

    A line may end in CR, LF or CRLF, and a chunk anywhere. An event is given out with the first byte that ends it:
    when a CRLF is torn apart there, its LF opens the raw bytes of the next one.
    """

    def __init__(self) -> None:
        self._raw: list[bytes] = []
        self._line: list[bytes] = []
        self._name = ""
        self._data: list[bytes] = []
        self._torn = False
        self._started = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        if not chunk:
            return []
        torn, self._torn = self._torn, chunk.endswith(b"\r")
        if torn and chunk.startswith(b"\n"):
            self._raw.append(b"\n")
            chunk = chunk[1:]
        found = []
        for piece in chunk.splitlines(keepends=True):
            self._raw.append(piece)
            self._line.append(piece)
            if piece.endswith((b"\n", b"\r")) and self._ends():
                found.append(self._event())
        return found

    def rest(self) -> list[Event]:
        """What the stream ended in: one event that no empty line closed, or none. Afterwards a new stream may begin."""
        if self._line:
            self._ends()
        found = [self._event()] if self._raw else []
        self._torn = self._started = False
        return found

    def _ends(self) -> bool:
        """Read the line that is now whole; true when it is the empty one that ends an event."""
        line = b"".join(self._line).rstrip(b"\r\n")
        self._line.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        return not line

    def _event(self) -> Event:
        event = Event(self._name, b"\n".join(self._data).decode("utf-8", "replace"), b"".join(self._raw))
        self._raw.clear()
        self._data.clear()
        self._name = ""
        return event


def encode(data: str, name: str = "") -> bytes:
    """An event as bytes. Newlines of any kind in `data` become data lines; half a surrogate pair becomes `?`."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = f"event: {name}\n" if name else ""
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode("utf-8", "replace")
