"""Function calls: those that a reply writes against the gold ones (Berkeley function calling leaderboard, parallel).

A gold call gives each parameter a list of values that are right; an empty string among them means that it may be left
out. The order of calls does not matter.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Calls", "calls_in", "matches"]

Call: TypeAlias = tuple[str, Mapping[str, Any]]

PROMPT = """\
Turn what the user wants into calls of these functions:
{functions}
The user may say it piece by piece: write the calls as well as you can with what you know so far, with all parameters \
by name, as one Python list: [function(parameter=value), function(parameter=value)]"""

_BLOCK = re.compile(r"```(?:\w+)?[ \t]*\n(.*?)```", re.DOTALL)
_LIST = re.compile(r"\[.*\]", re.DOTALL)
_LOOSE = re.compile(r"[ ,./\-_*^]")


class Calls:
    """Takes the last list of calls, or the calls that stand on lines of their own."""

    def prompt(self, record: Mapping[str, Any]) -> str:
        """Tells the functions of the record."""
        return PROMPT.format(functions=json.dumps(record["function"], ensure_ascii=False))

    def score(self, reply: str, record: Mapping[str, Any]) -> bool | None:
        """Whether the calls are those of the record's `reference_answer`."""
        orders = {str(f["name"]): list(f["parameters"]["properties"]) for f in record["function"]}
        found = calls_in(reply, orders)
        return matches(found, record["reference_answer"]) if found else None


def calls_in(reply: str, orders: Mapping[str, Sequence[str]]) -> list[Call]:
    """The calls that a reply writes as Python.

    Args:
        reply: the text.
        orders: the parameters of each function, for arguments without a name.
    """
    places = [*_BLOCK.findall(reply)[::-1], *_LIST.findall(reply), reply]
    for place in places:
        nodes = _nodes(place)
        if nodes:
            return [_call(node, orders) for node in nodes]
    return [_call(node, orders) for line in reply.split("\n") for node in _nodes(line)]


def _nodes(text: str) -> list[ast.Call]:
    try:
        tree = ast.parse(text.strip().strip("`"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return calls if len(calls) == len(nodes) else []


def _call(node: ast.Call, orders: Mapping[str, Sequence[str]]) -> Call:
    name = ast.unparse(node.func)
    given = {word: _value(argument) for word, argument in zip(orders.get(name, ()), node.args, strict=False)}
    given |= {word.arg: _value(word.value) for word in node.keywords if word.arg}
    return name, given


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return ast.unparse(node)  # a name, such as that of a table


def matches(found: Sequence[Call], gold: Sequence[Mapping[str, Mapping[str, Any]]]) -> bool:
    """Whether calls are the gold ones, in any order."""
    if len(found) != len(gold):
        return False
    if not found:
        return True
    (name, right), *others = gold[0].items()
    return not others and any(
        call[0] == name and _fits(call[1], right) and matches([*found[:at], *found[at + 1 :]], gold[1:])
        for at, call in enumerate(found)
    )


def _fits(given: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether each parameter has one of its right values, and none is missing or too many."""
    if not given.keys() <= right.keys():
        return False
    return all(
        any(_equal(given[name], value) for value in values) if name in given else "" in values
        for name, values in right.items()
    )


def _equal(given: Any, right: Any) -> bool:
    if isinstance(given, bool) or isinstance(right, bool):
        return given is right
    if isinstance(given, str) and isinstance(right, str):
        return _LOOSE.sub("", given).lower() == _LOOSE.sub("", right).lower()
    if isinstance(given, list | tuple) and isinstance(right, list):
        return len(given) == len(right) and all(map(_equal, given, right))
    if isinstance(given, Mapping) and isinstance(right, Mapping):
        return _fits(given, right)
    return bool(given == right)
