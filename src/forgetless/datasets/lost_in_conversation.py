"""Lost in Conversation: instructions cut into shards that a user reveals turn by turn (Laban et al., 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetless.datasets.judged import entries

__all__ = ["Sharded", "read_sharded"]


@dataclass(frozen=True, slots=True)
class Sharded:
    """One instruction.

    Attributes:
        name: its `task_id`.
        kind: the task: `math`, `code`, `actions`, `database`, `data2text`, `summary` or `translation`; `code without
            test` where the record does not bring one.
        shards: in the order in which they are revealed.
        whole: the instruction in one piece; "" for tasks that give it in another form.
        record: all that the file says, for what scores a reply.
    """

    name: str
    kind: str
    shards: tuple[str, ...]
    whole: str
    record: Mapping[str, Any]


def read_sharded(path: Path) -> list[Sharded]:
    """The instructions of `sharded_instructions_600.json` or a file like it.

    Raises:
        ConfigError: it can't be read, or is in another layout.
    """
    return entries(path, "Lost in Conversation", _sharded)


def _sharded(_: int, value: Mapping[str, Any]) -> list[Sharded]:
    shards = tuple(str(shard["shard"]) for shard in value["shards"])
    if not shards:
        raise ValueError("no shards")
    kind = str(value["task"])
    kind = "code without test" if kind == "code" and not value.get("test") else kind
    return [Sharded(str(value["task_id"]), kind, shards, _whole(value), value)]


def _whole(value: Mapping[str, Any]) -> str:
    kind = value["task"]
    if kind == "math":
        return str(value["question"])
    if kind == "code":
        return str(value["prompt"])
    if kind == "actions":
        return str(value["fully_specified_question"][0][0]["content"])
    return ""
