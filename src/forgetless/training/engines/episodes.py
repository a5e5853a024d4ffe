"""Episodes whose tokens an engine samples, many at a time; contexts, parsing and samples are those of `rollouts`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from forgetless.environments.base import Environment
from forgetless.policies.ccm.policy import LIMIT
from forgetless.policies.ccm.templates import TEMPLATES
from forgetless.training.rollouts import Played, act, begin, context

__all__ = ["Chat", "Generate", "episode", "write_seeds"]

Generate = Callable[[list[int]], Awaitable[tuple[list[int], list[float]]]]
"""A prompt's tokens to a reply's, with their log probabilities."""

ASK = TEMPLATES["tags"].ask.replace("{limit}", f"{LIMIT:,}")


class Chat:
    """A tokenizer of transformers, with each context as a user message that a reply is about to follow.

    The student is also told, as the system, to write a memory. The teacher's context has nothing of that: it ends where
    its reply begins, and the action follows token by token as it was sampled.

    Attributes:
        end: the number that ends a reply.
    """

    def __init__(self, tokenizer: Any, **options: Any) -> None:
        """Take a tokenizer with a chat template.

        Args:
            tokenizer: of transformers.
            options: for the template, such as `enable_thinking`.
        """
        self._tokenizer, self._options = tokenizer, options
        self.end: int = tokenizer.eos_token_id

    def encode(self, text: str) -> list[int]:
        """The numbers of a context without any telling."""
        return self._chat({"role": "user", "content": text})

    def asked(self, text: str) -> list[int]:
        """The numbers of a context for one who writes a memory."""
        return self._chat({"role": "system", "content": ASK}, {"role": "user", "content": text})

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of a reply, without what ends it."""
        text: str = self._tokenizer.decode(numbers, skip_special_tokens=True)
        return text

    def _chat(self, *messages: dict[str, str]) -> list[int]:
        numbers = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False, **self._options
        )
        return list(numbers)


async def episode(
    world: Environment, seed: int, generate: Generate, tokenizer: Chat, *, turns: int, longest: int
) -> Played:
    """Play an episode; the environment works in a thread, so that others go on meanwhile.

    Args:
        world: is closed afterwards.
        seed: of the episode.
        generate: samples a reply.
        tokenizer: reads and writes.
        turns: most of them.
        longest: most tokens of a context; the episode ends before one that has more.
    """
    try:
        live = await asyncio.to_thread(begin, world, seed)
        for _ in range(turns):
            prompt = tokenizer.asked(context(live))
            if live.over or len(prompt) > longest:
                break
            reply, old = await generate(prompt)
            await asyncio.to_thread(act, live, prompt, reply, old, tokenizer)
        return live.played
    finally:
        await asyncio.to_thread(world.close)


def write_seeds(file: Path, seeds: Iterable[int], environment: str, agent: str = "ccm") -> None:
    """Write the data file that an engine draws episodes from: a line for each seed.

    Args:
        file: a name that ends in .jsonl.
        seeds: of the episodes.
        environment: its name, for the engine's figures.
        agent: the agent loop's name.
    """
    common = {
        "data_source": environment,
        "agent_name": agent,
        "prompt": [{"role": "user", "content": f"An episode of {environment}."}],
        "reward_model": {"style": "rule", "ground_truth": ""},  # asked for at validation
    }
    with file.open("w", encoding="utf-8") as out:
        for seed in seeds:
            out.write(json.dumps({**common, "extra_info": {"index": seed}}) + "\n")
