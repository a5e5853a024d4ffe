"""A Dockerfile as a list of instructions, as far as tasks need them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Instruction", "expanded", "installs", "instructions", "pairs"]

_HEREDOC = re.compile(r"(?<!<)<<(-?)\s*([\"']?)([A-Za-z_]\w*)\2")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_INSTALLS = re.compile(
    r"(?:^|[;&|(]|\bthen\b|\bdo\b|\belse\b)\s*(?:sudo\s+)?(?:apt(?:-get|-key)?|pip3?|curl|wget|python3? -m pip)\s"
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: in capitals.
        text: all that stands behind it, with the bodies of here-documents.
        line: where it begins, from 1.
    """

    name: str
    text: str
    line: int


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, in order; comments and empty lines are none."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        began = at
        whole = lines[at].strip()
        at += 1
        if not whole or whole.startswith("#"):
            continue
        while whole.endswith("\\") and at < len(lines):
            more = lines[at].rstrip()
            at += 1
            if not more.lstrip().startswith("#"):
                whole = f"{whole[:-1]}{more}"
        for dash, _, end in _HEREDOC.findall(whole) if whole[:4].upper() in ("RUN ", "COPY") else ():
            while at < len(lines):
                body = lines[at]
                at += 1
                whole += f"\n{body}"
                if (body.lstrip("\t") if dash else body) == end:
                    break
        name, _, rest = whole.partition(" ")
        yield Instruction(name.upper(), rest.strip(" \t"), began + 1)


def installs(command: str) -> bool:
    """Whether a command fetches programs or packages, which there is no network for."""
    return bool(_INSTALLS.search(_QUOTED.sub("''", command.partition("\n")[0])))


def pairs(text: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that an ENV or ARG sets, in either of its forms."""
    first, _, rest = text.partition(" ")
    if "=" not in first:
        return {first: expanded(rest.strip(), env)} if rest else {}
    return dict(_pair(expanded(word, env)) for word in shlex.split(text) if "=" in word)


def expanded(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of the variables that it names."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        known = env.get(name, "")
        if found[3] == "-":
            return known or found[4]
        if found[3] == "+":
            return found[4] if known else ""
        return known

    return _VARIABLE.sub(value, text)


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
