"""Terminus-2 with other contexts: its terminal, its prompt and its parser, but not all of the history in each request.

`CCMAgent` sends task, memory and newest output; `LREAgent` what a policy keeps within a budget; `FullHistoryAgent`, the
control, everything. The agent's chat holds the whole history, and the trajectory says of each step what was sent.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, ClassVar

from harbor.agents.terminus_2.terminus_2 import Terminus2, Terminus2Options

from forgetless.errors import ConfigError
from forgetless.integrations.harbor.contexts import UNLIMITED, Keeper, Rewritten, Steps
from forgetless.integrations.harbor.model import KeptModel
from forgetless.policies.ccm.policy import LIMIT
from forgetless.registry import LASTING

__all__ = ["CCMAgent", "FullHistoryAgent", "LREAgent"]


class _Terminus(Terminus2):  # type: ignore[misc]
    """Terminus-2 whose requests are made by a keeper.

    It does not summarise on its own: what it would count is its history, and not what is sent.
    """

    def __init__(self, *args: Any, enable_summarize: bool = False, **kwargs: Any) -> None:
        if enable_summarize:
            raise ConfigError("enable_summarize must be false: this agent keeps its requests small by itself")
        super().__init__(*args, enable_summarize=False, **kwargs)

    def version(self) -> str:
        """Of this package."""
        return version("forgetless")

    @property
    def marks(self) -> bool:
        """Whether its keeper marks for Anthropic's cache; else Harbor does, the newest four blocks."""
        return False

    def _keeper(self) -> Keeper:
        """Makes the requests of a run."""
        raise NotImplementedError

    def _init_llm(self, *args: Any, **kwargs: Any) -> KeptModel:
        model = super()._init_llm(*args, **kwargs)
        return KeptModel(model, self._keeper(), marks=self.marks)

    def _reset_per_run_state(self) -> None:
        super()._reset_per_run_state()
        self._llm.begin(self._keeper())

    def _dump_trajectory_with_continuation_index(self, continuation_index: int) -> None:
        acted = (step for step in self._trajectory_steps if step.source == "agent")
        for step, note in zip(acted, self._llm.notes, strict=False):
            step.extra = {**(step.extra or {}), "context": note}
        super()._dump_trajectory_with_continuation_index(continuation_index)


class CCMOptions(Terminus2Options):  # type: ignore[misc]
    """Options of `CCMAgent` beside those of Terminus-2."""

    model_config: ClassVar[Any] = {"use_attribute_docstrings": True}

    budget: int | None = None
    """Most tokens of a request. By default the model's window less an eighth for the reply."""
    limit: int = LIMIT
    """Most tokens of the memory."""
    edits: bool = False
    """Let the model change lines of its memory instead of writing it anew."""


class CCMAgent(_Terminus):
    """Writes its memory anew in each reply, in a field `context_window`, and sees it in place of the history."""

    options_model = CCMOptions

    @staticmethod
    def name() -> str:
        """Of the agent."""
        return "forgetless-ccm"

    @property
    def marks(self) -> bool:
        """Whether the model is one whose provider's cache is told what to keep, by its name, as Harbor tells it."""
        return any(name in self.model_name.lower() for name in ("anthropic", "claude"))

    def _keeper(self) -> Keeper:
        options = self.options
        if options.parser_name != "json":
            raise ConfigError(f"parser_name must be 'json', where a memory has a field, not {options.parser_name!r}")
        template = self._get_prompt_template_path().read_text(encoding="utf-8")
        screen = template.partition("{instruction}")[2].partition("{terminal_state}")[0]
        return Rewritten(
            self.model_name, options.budget, limit=options.limit, edits=options.edits, screen=screen, marks=self.marks
        )


class LREOptions(Terminus2Options):  # type: ignore[misc]
    """Options of `LREAgent` beside those of Terminus-2."""

    model_config: ClassVar[Any] = {"use_attribute_docstrings": True}

    policy: str = LASTING
    """Decides what stays, by name."""
    policy_options: dict[str, Any] | None = None
    """The policy's own."""
    budget: int | None = None
    """Most tokens of a request. By default the model's window less an eighth for the reply."""


class LREAgent(_Terminus):
    """Keeps the steps that a policy chooses, word for word, within a budget."""

    options_model = LREOptions

    @staticmethod
    def name() -> str:
        """Of the agent."""
        return "forgetless-lre"

    def _keeper(self) -> Keeper:
        options = self.options
        return Steps(self.model_name, options.policy, options.budget, **(options.policy_options or {}))


class FullHistoryAgent(_Terminus):
    """Sends everything: the control."""

    @staticmethod
    def name() -> str:
        """Of the agent."""
        return "forgetless-full"

    def _keeper(self) -> Keeper:
        return Steps(self.model_name, "full", UNLIMITED)
