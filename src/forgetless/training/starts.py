"""A start's folder: the model that `train ccm` begins from, its tokenizer, and the environment that it was made for."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from forgetless.environments.base import Environment
from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.local.backbone import quiet
from forgetless.registry import load_environment
from forgetless.training.words import Words

__all__ = ["Pretrained", "Start", "adapted", "load_start", "save_start"]

WORDS = "words.json"
TOLD = "start.json"
NEEDED = ("environment", "options", "turns", "reply")


@dataclass(frozen=True, slots=True)
class Start:
    """What was read from a folder.

    Attributes:
        model: of transformers, in evaluation mode.
        tokenizer: its own.
        told: how it was made: among all else `environment` and `options`, `turns` of an episode and tokens of a
            `reply`.
    """

    model: Any
    tokenizer: Words | Pretrained
    told: Mapping[str, Any]

    @property
    def worlds(self) -> Callable[[], Environment]:
        """Makes an environment like the one that it was made for."""
        return partial(load_environment, self.told["environment"], **self.told["options"])


class Pretrained:
    """A tokenizer of transformers, without its chat template and without what it would put around a text.

    Attributes:
        held: the tokenizer itself.
        end: ends a reply, and fills up rows.
    """

    def __init__(self, held: Any) -> None:
        self.held = held
        self.end: int = held.eos_token_id

    def encode(self, text: str) -> list[int]:
        """The numbers of a text."""
        found: list[int] = self.held.encode(text, add_special_tokens=False)
        return found

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers; what ends a reply is no text."""
        return str(self.held.decode(list(numbers), skip_special_tokens=True))


def save_start(model: Any, tokenizer: Words | Pretrained, folder: Path, told: Mapping[str, Any]) -> None:
    """Write a model with all that belongs to it."""
    with quiet():
        model.save_pretrained(folder)
    if isinstance(tokenizer, Words):
        (folder / WORDS).write_text(json.dumps(tokenizer.pieces, ensure_ascii=False) + "\n", "utf-8")
    else:
        tokenizer.held.save_pretrained(folder)
    (folder / TOLD).write_text(json.dumps(told, indent=2) + "\n", "utf-8")


def load_start(folder: Path) -> Start:
    """What `save_start` wrote.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    if not (folder / TOLD).exists():
        raise ConfigError(f"{str(folder)!r} holds no model to begin from: make one with `forgetless train ccm-start`")
    try:
        told = json.loads((folder / TOLD).read_text("utf-8"))
        if missing := [key for key in NEEDED if key not in told]:
            raise ValueError(f"{TOLD} has no {missing[0]}")
        return _loaded(folder, told)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise ConfigError(
            f"the model in {str(folder)!r} is damaged ({' '.join(str(error).split())[:160]}): make one anew with "
            "`forgetless train ccm-start`"
        ) from error


def _loaded(folder: Path, told: Mapping[str, Any]) -> Start:
    with quiet() as transformers:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        if (folder / WORDS).exists():
            return Start(model, Words(json.loads((folder / WORDS).read_text("utf-8"))), told)
        return Start(model, Pretrained(transformers.AutoTokenizer.from_pretrained(folder)), told)


def adapted(model: Any, rank: int, seed: int) -> Any:
    """A model with a LoRA adapter on all its linear layers, in float32; nothing else of it learns.

    Raises:
        MissingExtra: peft is not installed.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "peft") from error
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 reads what transformers 6 calls otherwise
        return get_peft_model(model, config)
