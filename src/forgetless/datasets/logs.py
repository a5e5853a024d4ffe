"""Logs of conversations from many kinds of files, as units: what the scorers learn from.

Known are stores (SQLite), their exports (JSON lines), logs of requests to OpenAI and Anthropic (JSON lines of bodies),
ATIF trajectories, and the files of LoCoMo, LongMemEval, MT-Eval and MT-Bench+. What a file is shows by its
content; JSON lines are read one at a time.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetless.datasets.locomo import load_locomo
from forgetless.datasets.longmemeval import is_longmemeval, read_longmemeval
from forgetless.dialects.atif import is_atif, messages_from_atif
from forgetless.dialects.base import detect
from forgetless.errors import ConfigError, RequestError
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Asked", "Log", "read_logs", "read_store", "units_of"]

_LENGTH = Counter(len)  # features do not look at tokens


@dataclass(frozen=True, slots=True)
class Asked:
    """A question asked after a conversation.

    Attributes:
        text: the question.
        answer: the gold answer, "" where there is none.
        evidence: indices of the units that hold the answer, where a person has marked them.
    """

    text: str
    answer: str
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """One conversation or agent run.

    Attributes:
        name: tells it from others.
        units: all of it.
        questions: asked after it, where a benchmark has any.
        texts: what each unit says, where that is less than its text: without date and name.
    """

    name: str
    units: Sequence[Unit]
    questions: tuple[Asked, ...] = ()
    texts: tuple[str, ...] = ()


def units_of(messages: Any, dialect: str = "chat") -> list[Unit]:
    """The units of wire messages."""
    return split(load_dialect(dialect).parse(messages).messages, _LENGTH)


def read_logs(paths: Iterable[Path]) -> Iterator[Log]:
    """Read files and folders, in their order; the files of a folder by name.

    Raises:
        ConfigError: a file can't be read, or is of no known kind; names the line.
    """
    for path in paths:
        files = sorted(f for f in path.iterdir() if f.suffix in (".json", ".jsonl", ".gz")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"the folder {str(path)!r} holds no .json, .jsonl or .jsonl.gz file")
        for file in files:
            yield from _file(file)


def _file(path: Path) -> Iterator[Log]:
    try:
        with path.open("rb") as opened:
            start = opened.read(16)
        if start == b"SQLite format 3\0":
            yield from read_store(str(path.resolve()))
        elif path.suffix == ".json":
            yield from _whole(path, json.loads(path.read_text(encoding="utf-8")))
        else:
            with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as f:
                yield from _longest(_lines(path, f))
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None


def read_store(spec: str | None) -> Iterator[Log]:
    """The conversations in a store, as `open_store` names it.

    Raises:
        StoreError: it can't be opened.
    """
    from forgetless.stores.export import lines
    from forgetless.stores.open import open_store

    with closing(open_store(spec)) as store:
        yield from _longest(_lines(Path("store"), (line.decode() for line in lines(store))))


def _whole(path: Path, value: Any) -> Iterator[Log]:
    """The logs of a JSON file."""
    samples = value if isinstance(value, list) and value and isinstance(value[0], Mapping) else [value]
    first = samples[0]
    if isinstance(first, Mapping) and "qa" in first and "conversation" in first:
        for talk in load_locomo(path):
            asked = tuple(Asked(q.text, q.answer, q.evidence) for q in talk.questions)
            yield Log(talk.name, units_of(list(talk.messages)), asked, talk.texts)
    elif is_longmemeval(first):
        for number, sample in enumerate(samples):
            name, messages, questions = read_longmemeval(path, number, sample)
            yield Log(name, units_of(messages), tuple(Asked(*question) for question in questions))
    elif isinstance(value, list) and isinstance(first, Mapping) and "role" in first:
        yield _read(path, 1, value)
    else:
        for number, sample in enumerate(samples, 1):
            yield _read(path, number, sample)


def _lines(path: Path, lines: Iterable[str]) -> Iterator[Log]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{str(path)!r}, line {number}: no JSON ({error})") from None
        log = _read(path, number, value)
        if log.units:
            yield log


def _read(path: Path, number: int, value: Any) -> Log:
    """A log of one JSON value: a trajectory, a line of an export, the body of a request, a list of messages."""
    try:
        if is_atif(value):
            name = "/".join(str(value[key]) for key in ("task", "trial") if key in value)
            return Log(name or f"{path.name}:{number}", units_of(messages_from_atif(value)))
        if isinstance(value, Mapping):
            value = next((value[key] for key in ("request", "body") if isinstance(value.get(key), Mapping)), value)
            turns = _turns(value)
            if turns is not None:
                return Log(str(value.get("id", number)), units_of(turns))
        name = str(value["conversation"]) if isinstance(value, Mapping) and "conversation" in value else ""
        messages = value["messages"] if name else value
        if name and any("content" not in m and "type" not in m for m in messages):
            return Log(name, ())  # the store kept no contents
        dialect = value["dialect"] if name else detect(value)
        return Log(name or f"{path.name}:{number}", units_of(messages, dialect))
    except (KeyError, TypeError, ValueError, AttributeError, RequestError) as error:
        raise ConfigError(
            f"{str(path)!r}, record {number}: no conversation of a known kind ({type(error).__name__}: {error})"
        ) from None


def _turns(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The messages of a line of MT-Eval or an entry of MT-Bench+; None when it is neither."""
    if isinstance(value.get("conv"), list):
        pairs = ((("user", turn["user"]), ("assistant", turn["sys"])) for turn in value["conv"])
        return [{"role": role, "content": text} for pair in pairs for role, text in pair]
    if isinstance(value.get("conversations"), list):
        roles = {"human": "user", "user": "user"}
        turns = value["conversations"]
        return [{"role": roles.get(turn["from"], "assistant"), "content": turn["value"]} for turn in turns]
    return None


def _longest(logs: Iterable[Log]) -> Iterator[Log]:
    """Every conversation once: of requests that go on from one another, the last one.

    What a request goes on from is told by the keys of its units. One log is held at a time for each conversation.
    """
    heads: dict[bytes, Log] = {}
    for log in logs:
        for unit in log.units:
            heads.pop(unit.key, None)
        heads[log.units[-1].key] = log
    yield from heads.values()
