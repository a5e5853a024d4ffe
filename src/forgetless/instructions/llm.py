"""The recogniser `llm`: a model is asked whether a message is a global instruction (REA, Table 6).

The paper prints the instruction and the two examples; how the input is put is taken from these. The reply counts as
yes where it has YES and not NO in it, the paper's rule; or, where a threshold is given and the model tells the
probabilities of its first word, where the log odds of YES against NO are above the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

from forgetless.errors import ModelError
from forgetless.instructions.base import Span
from forgetless.models.base import Model
from forgetless.sentences import sentences

__all__ = ["PROMPT", "Llm"]

PROMPT = """\
You are a classifier. Determine whether the following user input is a "global instruction" in a multi-turn conversation.

A global instruction is a directive that affects all subsequent responses such as their style, format, length, or \
language.

If the input is a global instruction, answer: YES. If not, answer: NO.

Examples:

Input: Explain what is a poem? Answer: NO

Input: All future answers must be less than 30 words. Answer: YES

Input: {text} Answer:"""

TOKENS = 16
"""Of a reply, as in the paper's code."""

CANDIDATES = 20
"""First words of which the probabilities are asked for: the most that OpenAI gives."""


@dataclass(frozen=True)
class Llm:
    """Asks a model, greedily, and once more for each sentence of a message that counts.

    Attributes:
        model: any; it gets one user message.
        threshold: the log odds above which a message counts; without, the words of the reply decide.
    """

    model: Model
    threshold: float | None = None

    def __call__(self, text: str) -> list[Span]:
        """The sentences that count, or all of the message where only the whole of it does.

        Raises:
            ModelError: the model could not be asked, or does not tell probabilities.
        """
        spans = list(sentences(text))
        if not spans or not self._counts(text):
            return []
        if len(spans) == 1:
            return spans
        return [(start, end) for start, end in spans if self._counts(text[start:end])] or [(spans[0][0], spans[-1][1])]

    def odds(self, text: str) -> float:
        """The log odds of YES against NO as the first word of the reply.

        Raises:
            ModelError: the model could not be asked, or does not tell probabilities.
        """
        reply = self._ask(text, max_tokens=1, logprobs=True, top_logprobs=CANDIDATES)
        try:
            first = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            chances = {"YES": 0.0, "NO": 0.0}
            for candidate in first:
                word = candidate["token"].strip().upper()
                if word in ("YES", "Y", "YE", "NO", "N"):
                    chances["YES" if word[0] == "Y" else "NO"] += exp(candidate["logprob"])
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ModelError(f"{self.model.name!r} tells no probabilities: leave out the threshold") from None
        yes, no = chances["YES"], chances["NO"]
        return log(yes / no) if yes and no else inf if yes else -inf

    def _counts(self, text: str) -> bool:
        if self.threshold is not None:
            return self.odds(text) > self.threshold
        said = self._ask(text, max_tokens=TOKENS)["choices"][0]["message"]["content"] or ""
        return "YES" in said and "NO" not in said

    def _ask(self, text: str, **options: Any) -> Mapping[str, Any]:
        question = {"role": "user", "content": PROMPT.format(text=text)}
        return self.model({"messages": [question], "temperature": 0, **options})
