"""A model's next reply in a dialogue, of which it is shown what a form makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forgetless.benchmarks.asked import Asked, refuses, text_of_reply
from forgetless.benchmarks.forms import Form, Messages, Scene, form
from forgetless.errors import BudgetError, ModelError

__all__ = ["Answer", "Player"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply.

    Attributes:
        text: its words.
        tokens: of the prompt, as the model counted.
        seconds: that the model took, for what the form asked of it too.
        failed: why there is no reply, else "".
    """

    text: str = ""
    tokens: int = 0
    seconds: float = 0.0
    failed: str = ""


@dataclass(frozen=True)
class Player:
    """Asks a model, greedily.

    Attributes:
        model: that replies.
        policy: a form of `benchmarks.forms`, or a policy.
        budget: tokens of a prompt, for policies of this project; the paper's forms have none.
        most: tokens of a reply.
        seed: goes along, so that the embedded engine reads each prompt anew and rounds the same way.
    """

    model: Asked
    policy: str
    budget: int
    most: int
    seed: int = 0

    @cached_property
    def _form(self) -> Form:
        return form(self.policy, Scene(self.model, (), self.budget, self.seed))

    def __call__(self, messages: Messages) -> Answer:
        """The reply to a conversation that ends with the user; a system prompt stays as it is, whatever the form.

        Raises:
            ModelError: the model can't be reached.
            ConfigError: there is no such form.
        """
        before = self.model.seconds
        try:
            reply = self.model(self._body(self._shown(messages)))
        except BudgetError as error:
            return Answer(failed=str(error))
        except ModelError as error:
            if not refuses(error):
                raise
            return Answer(failed=str(error))
        tokens = reply["usage"].get("prompt_tokens") or 0
        return Answer(text_of_reply(reply), tokens, round(self.model.seconds - before, 3))

    def _shown(self, messages: Messages) -> Messages:
        if messages[0]["role"] != "system":
            return self._form(messages)
        system, *said = messages
        shown = self._form(said)
        if shown[0]["role"] != "system":
            return [system, *shown]
        return [{**system, "content": f"{system['content']}\n\n{shown[0]['content']}"}, *shown[1:]]

    def _body(self, messages: Messages) -> dict[str, Any]:
        return {"messages": messages, "temperature": 0, "max_tokens": self.most, "seed": self.seed}
