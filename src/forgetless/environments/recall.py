"""Recall: codes are shown early and asked for late, between reports that name other codes over and over.

The agent reads pages one by one and is then asked for every code. A notice gives the codes of two things. A report says
other things of the same ones, with the numbers of tickets, parts and orders, which look like codes, come from a small
pool and so turn up on many pages. Neither the form of a number, nor how many stand on a page, nor how often one comes
tells what will be asked; all pages have the same length. No question and no verdict on an answer shows a code, so an
agent whose context holds nothing but the task and the newest observation can only guess, one in 210,000.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random

from forgetless.environments.base import Start, Step
from forgetless.errors import ConfigError

__all__ = ["ANSWER", "FACT", "NEXT", "QUESTION", "THINGS", "Recall"]

NEXT = "next"
ANSWER = "answer"

PAIR = 2
"""Codes in a notice."""

REFERENCES = 4
"""Numbers in a report, where its length has room for them."""

FACT = "The code of the {thing} is {code}."
QUESTION = "What is the code of the {thing}?"

_ADJECTIVES = (
    "amber black blue brass broad cold copper deep dry early far grey green high iron long low narrow new north old "
    "outer plain quiet red round small south steel tall west white"
)
_NOUNS = (
    "anchor barge basin beacon boiler bridge canal cellar cistern crane depot dock engine ferry furnace gate hangar "
    "kiln ladder lift lock mill mooring pump quarry reactor shed silo tower tunnel turbine valve"
)
THINGS = tuple(f"{one} {other}" for one in _ADJECTIVES.split() for other in _NOUNS.split())
MOST = len(THINGS)
"""Most codes of an episode, a thing for each."""

_REPORTS = (
    "Ticket {number} for the {thing} is still open.",
    "Part {number} was ordered for the {thing}.",
    "The {thing} was cleaned under order {number}.",
    "The inspector noted {number} at the {thing}.",
    "Work on the {thing} goes on as {number} says.",
)
_FILLERS = (
    "The shift was calm and nobody had to stay longer.",
    "It rained for most of the morning.",
    "A visitor asked for the way to the office.",
    "The lights in the hall were left on again.",
    "Lunch was late, and the coffee was cold.",
    "Someone should sweep the stairs before the weekend.",
    "The phone rang twice but there was no one on the line.",
    "The new colleague was shown around.",
)
_ACTION = re.compile(rf"^\W*(?:action\W+)?(?:({NEXT})\b\W*$|{ANSWER}\b\W+(\w+))", re.IGNORECASE | re.MULTILINE)
"""An action stands at the start of a line: prose may hold the words too."""


class Recall:
    """Plays one episode at a time.

    Attributes:
        name: with its version.
    """

    name = "recall@1"

    def __init__(self, codes: int = 16, pages: int = 64, distance: int = 16, words: int = 60) -> None:
        """Prepare episodes of `pages` turns of reading and `codes` turns of answering.

        Args:
            codes: given on the pages, each asked for once.
            pages: to read; those that give no code are reports.
            distance: least reports between the last code given and the first question.
            words: least words of a page, filled up with idle sentences.

        Raises:
            ConfigError: the codes and the distance need more pages.
        """
        for name, value in (("codes", codes), ("pages", pages), ("distance", distance), ("words", words)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be a whole number, not {value!r}")
        notices = -(-codes // PAIR)
        if not 1 <= codes <= MOST:
            raise ConfigError(f"codes must be from 1 to {MOST:,}, not {codes!r}")
        if min(distance, words) < 0:
            raise ConfigError(f"distance and words must be at least 0, not {distance!r} and {words!r}")
        if pages < notices + distance:
            raise ConfigError(
                f"{codes!r} codes, at a distance of {distance!r} pages, need {notices + distance} pages, not {pages!r}"
            )
        self._many, self._notices, self._pages, self._distance, self._words = codes, notices, pages, distance, words
        self._shows: list[str] = []  # the pages, then the questions
        self._answers: list[str] = []
        self._shown = pages + codes + 1  # as at the end of an episode

    def start(self, seed: int) -> Start:
        """Begin the episode of a seed."""
        rng = Random(f"{self.name} {seed}")
        things = rng.sample(THINGS, self._many)
        numbers = _numbers(rng)
        codes = dict(zip(things, islice(numbers, self._many), strict=True))
        pool = list(islice(numbers, max(2, self._many // 2)))
        asked = rng.sample(things, self._many)
        self._shows = [*self._written(rng, codes, pool), *(QUESTION.format(thing=thing) for thing in asked)]
        self._answers = [codes[thing] for thing in asked]
        self._shown = 0
        return Start(
            f"Read the pages of a logbook ({self._pages}) and keep the codes of things in mind. When all are read, you "
            f"are asked for codes ({self._many}).\nThere are two actions: `{NEXT}` shows the next page or the first "
            f"question, `{ANSWER} CODE` answers a question and shows the next one. Nothing is shown twice."
        )

    def step(self, action: str) -> Step:
        """Read on, or answer."""
        found = _ACTION.search(action)
        place = self._shown - self._pages - 1  # of the question that is open, from 0
        if place >= self._many:
            return Step("It is over.", done=True, valid=False)
        if found is None or (place >= 0) == bool(found[1]):
            return Step(self._hint(place), valid=False)
        self._shown += 1
        if place < 0:
            return Step(self._shows[self._shown - 1])
        right = found[2].upper() == self._answers[place]
        told = "Right." if right else "Wrong."
        reward = right / self._many
        if place == self._many - 1:
            return Step(told, reward, done=True)
        return Step(f"{told} {self._shows[self._shown - 1]}", reward)

    def close(self) -> None:
        """Nothing to leave behind."""

    def _hint(self, place: int) -> str:
        """What is possible; an open question is asked again, a page is not shown again."""
        if place < 0:
            return f"Now only `{NEXT}` is possible."
        return f"Now only `{ANSWER} CODE` is possible. {self._shows[self._shown - 1]}"

    def _written(self, rng: Random, codes: Mapping[str, str], pool: Sequence[str]) -> Iterator[str]:
        """The pages: codes, in twos, on pages before the distance, reports on all others."""
        given = list(codes.items())
        notices = set(rng.sample(range(self._pages - self._distance), self._notices))
        for page in range(self._pages):
            if page in notices:
                said = [FACT.format(thing=thing, code=code) for thing, code in given[:PAIR]]
                given = given[PAIR:]
            else:
                said = self._report(rng, list(codes), pool)
            yield _filled(rng, said, self._words)

    def _report(self, rng: Random, things: Sequence[str], pool: Sequence[str]) -> list[str]:
        """Sentences with numbers of the pool, within the length of a page where it has room for more than one."""
        said: list[str] = []
        for number in rng.sample(pool, min(REFERENCES, len(pool))):
            sentence = rng.choice(_REPORTS).format(number=number, thing=rng.choice(things))
            if said and _length([*said, sentence]) > self._words:
                break
            said.append(sentence)
        return said


def _numbers(rng: Random) -> Iterator[str]:
    """Numbers of one form, all different, without end."""
    seen = set[str]()
    while True:
        number = f"{rng.choice('ABCDEFGHKLMNPRSTUVWXYZ')}{rng.randrange(10**4):04}"
        if number not in seen:
            seen.add(number)
            yield number


def _filled(rng: Random, said: Sequence[str], least: int) -> str:
    """A page of these sentences and as many idle ones as it takes, mixed."""
    sentences = list(said)
    idle: list[str] = []
    while _length(sentences) < least:
        idle = idle or rng.sample(_FILLERS, len(_FILLERS))
        sentences.append(idle.pop())
    rng.shuffle(sentences)
    return " ".join(sentences)


def _length(sentences: Sequence[str]) -> int:
    return sum(len(sentence.split()) for sentence in sentences)
