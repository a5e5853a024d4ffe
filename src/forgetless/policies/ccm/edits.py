"""A small change of a memory, line by line: cheaper to write than the whole."""

from __future__ import annotations

__all__ = ["edited"]

_BULLETS = ("- ", "* ", "+ ", "• ")


def edited(memory: str, edit: str) -> str | None:
    """A memory with an edit applied; None where the edit can't be: it says what it means to nobody.

    Args:
        memory: its lines.
        edit: lines with `-` in front take the one line away that is so, or that alone begins so; lines with `+` in
            front are added, in the place of the line just taken away or at the end.
    """
    lines = memory.split("\n") if memory else []
    place: int | None = None
    found = False
    for line in filter(str.strip, edit.split("\n")):
        mark, text = line.lstrip()[0], line.lstrip()[1:].removeprefix(" ").rstrip()
        if mark == "-":
            place = _named(lines, text.strip())
            if place is None:
                return None
            del lines[place]
        elif mark == "+":
            at = len(lines) if place is None else place
            lines.insert(at, text)
            place = None if place is None else place + 1
        else:
            return None
        found = True
    return "\n".join(lines) if found else None


def _named(lines: list[str], text: str) -> int | None:
    """The line that a text names: the first that is so, else the only one that begins so, bullet or not."""
    bare = [line.strip() for line in lines]
    plain = [line.removeprefix(next(filter(line.startswith, _BULLETS), "")) for line in bare]
    for seen in (bare, plain):
        if text in seen:
            return seen.index(text)
    begun = [at for at, line in enumerate(bare) if text and (line.startswith(text) or plain[at].startswith(text))]
    return begun[0] if len(begun) == 1 else None
