"""A model as a judge of single replies: what it is asked, and how its verdict is read.

The prompts say in our own words what those of MT-Bench, MT-Eval and CharacterBench ask for; scores depend on the judge
far more than on such wording, so every table names it. A verdict without a rating is asked for once more, and then
counts as none: never as 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forgetless.benchmarks.asked import refuses, text_of_reply
from forgetless.datasets.judged import Dialogue
from forgetless.errors import ModelError
from forgetless.models.base import Model

__all__ = ["RUBRICS", "Judge", "Rubric", "Verdict", "rating"]

TOKENS = 1_024
"""Most of a verdict."""

MT_BENCH = """\
Judge, without favour, how good an assistant's answer is. Look at how helpful, relevant, accurate, deep and creative \
it is and whether it has the right amount of detail. Explain your judgement briefly first. Then rate the answer from \
1 to 10 in exactly this form: [[rating]], for example: Rating: [[5]]"""

REFERENCED = """\
Judge, without favour, whether an assistant's answer is right and helpful. Compare it with the reference answer first \
and name its mistakes. Then rate the answer from 1 to 10 in exactly this form: [[rating]], for example: Rating: [[5]]"""

MT_EVAL = """\
Judge, without favour, an assistant's last answer in a conversation. Look at whether it does what the user asks for, \
with all instructions of earlier turns that still hold, and whether it is right, relevant and complete. Reply with one \
JSON object and nothing else: {"Rationale": "why, in a few sentences", "Score": a whole number from 1 to 10}"""

CHARACTER = """\
Judge one dimension of a character's last answer in a role play: how well the answer does in this dimension, given the \
profile, the conversation and, where there is one, the reference. 1 is a plain contradiction or failure, 3 neither \
right nor wrong, 5 right and complete. Reply with one JSON object and nothing else: \
{"Rationale": "why, in a few sentences", "Score": a whole number from 1 to 5}"""

AGAIN = "There is no rating that can be read in your reply. Give it now, in exactly the form that was asked for."


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a judge is asked.

    Attributes:
        prompt: the task.
        referenced: the task where the turn has a reference answer.
        most: the best rating; the worst is 1.
    """

    prompt: str
    referenced: str
    most: int = 10

    def ask(self, dialogue: Dialogue, at: int, answers: Sequence[str]) -> list[dict[str, str]]:
        """The messages to a judge.

        Args:
            dialogue: what was talked about.
            at: the turn whose answer is judged.
            answers: the assistant's, up to that one.
        """
        turn = dialogue.turns[at]
        shown = range(at) if turn.sees is None else turn.sees
        before = [f"User: {dialogue.turns[n].user}\n\nAssistant: {answers[n]}" for n in shown]
        parts = [("About", dialogue.about)] if dialogue.about else []
        parts += [("Earlier conversation, not to be judged", "\n\n".join(before))] if before else []
        parts += [("User's question", turn.user)]
        parts += [("Reference answer", turn.reference)] if turn.reference else []
        parts += [("Assistant's answer, to be judged", answers[at])]
        said = "\n\n".join(f"[Start: {name}]\n{text}\n[End: {name}]" for name, text in parts)
        task = self.referenced if turn.reference else self.prompt
        return [{"role": "user", "content": f"{task}\n\n{said}"}]


RUBRICS: Mapping[str, Rubric] = {
    "mt_bench": Rubric(MT_BENCH, REFERENCED),
    "mt_bench_plus": Rubric(MT_BENCH, REFERENCED),
    "long_mt_bench_plus": Rubric(MT_BENCH, REFERENCED),
    "mt_eval": Rubric(MT_EVAL, MT_EVAL),
    "characterbench": Rubric(CHARACTER, CHARACTER, 5),
}
"""By data set."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of an answer.

    Attributes:
        score: the rating; None where it gave none that can be read.
        text: its last reply.
        asked: how often it was asked.
    """

    score: float | None
    text: str
    asked: int


@dataclass(frozen=True)
class Judge:
    """A model that judges, greedily.

    Attributes:
        model: that is asked.
        rubric: what it is asked.
        seed: goes along, for models that round differently by what was asked before.
    """

    model: Model
    rubric: Rubric
    seed: int = 0

    def __call__(self, dialogue: Dialogue, at: int, answers: Sequence[str]) -> Verdict:
        """Judge the answer to one turn, as `Rubric.ask` has it. A request that the judge refuses has no score.

        Raises:
            ModelError: the judge can't be reached.
        """
        messages = self.rubric.ask(dialogue, at, answers)
        text = ""
        for asked in (1, 2):
            try:
                text = text_of_reply(self.model(self._body(messages)))
            except ModelError as error:
                if not refuses(error):
                    raise
                return Verdict(None, str(error), asked)
            score = rating(text, self.rubric.most)
            if score is not None:
                return Verdict(score, text, asked)
            messages = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": AGAIN}]
        return Verdict(None, text, 2)

    def _body(self, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        return {"messages": list(messages), "temperature": 0, "max_tokens": TOKENS, "seed": self.seed}


_NUMBER = r"(\d{1,3}(?:\.\d+)?)(?:\s*/\s*\d+)?"
_BRACKETS = re.compile(rf"\[\[\s*(?:rating:?\s*)?{_NUMBER}\s*\]\]", re.IGNORECASE)
_FIELD = re.compile(rf'"score"\s*:\s*"?{_NUMBER}"?\s*[,}}\n]', re.IGNORECASE)


def rating(text: str, most: int) -> float | None:
    """The rating that a verdict gives: the last `[[n]]`, else the field `Score` of JSON; None where there is none.

    Args:
        text: the verdict; JSON may be broken or stand among other words.
        most: the best rating; one outside of 1 to `most` is none.
    """
    found = _BRACKETS.findall(text) or _fields(text)
    score = float(found[-1]) if found else 0.0
    return score if 1 <= score <= most else None


def _fields(text: str) -> list[str]:
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[start : end + 1])
    except ValueError:
        return _FIELD.findall(text)
    named = {str(name).lower(): found for name, found in value.items()} if isinstance(value, dict) else {}
    found = re.fullmatch(rf"\s*{_NUMBER}\s*", str(named.get("score", "")))
    return [found[1]] if found else []
