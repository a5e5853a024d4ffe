"""Harbor's model with a keeper before it: the agent's chat holds the whole history, and what is sent is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harbor.llms.base import BaseLLM, LLMResponse

from forgetless.integrations.harbor.contexts import Keeper

__all__ = ["KeptModel"]


class KeptModel(BaseLLM):  # type: ignore[misc]
    """A model that is asked what its keeper makes of the history.

    Attributes:
        notes: of each reply, in order, what its keeper noted.

    Args:
        model: that answers.
        keeper: of the first run.
        marks: whether the keeper marks for Anthropic's cache itself.
    """

    def __init__(self, model: BaseLLM, keeper: Keeper, *, marks: bool = False) -> None:
        super().__init__()
        self.notes: list[dict[str, Any]] = []
        self._model, self._keeper, self._marks = model, keeper, marks

    def begin(self, keeper: Keeper) -> None:
        """Begin another run."""
        self._keeper, self.notes = keeper, []

    async def call(self, prompt: str, message_history: Sequence[dict[str, Any]] = (), **kwargs: Any) -> LLMResponse:
        """Ask for a reply; what only the agent's model may see is taken out of it.

        Args:
            prompt: the newest output.
            message_history: all turns before it.
            kwargs: as for Harbor's models. `previous_response_id` is not used: what a provider holds is not rewritten.

        Raises:
            BudgetError: what must stay does not fit.
        """
        kwargs.pop("previous_response_id", None)
        history = [*message_history, {"role": "user", "content": prompt}]
        sent = await asyncio.to_thread(self._keeper.prepare, history)  # other trials go on meanwhile
        if self._marks:
            kwargs["messages"] = sent  # Harbor would mark the newest four blocks, which are never read again
        response = await self._model.call(prompt=sent[-1]["content"], message_history=sent[:-1], **kwargs)
        content = self._keeper.observe(response.content, response.usage)
        self.notes.append(self._keeper.note)
        return replace(response, content=content, response_id=None)

    def get_model_context_limit(self) -> int:
        """The model's."""
        limit: int = self._model.get_model_context_limit()
        return limit

    def get_model_output_limit(self) -> int | None:
        """The model's."""
        limit: int | None = self._model.get_model_output_limit()
        return limit
