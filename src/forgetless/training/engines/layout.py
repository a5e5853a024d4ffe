"""Rows of an engine's batch to the objective's terms and back: advantages, the teacher's rows, and masks, in torch.

A row is a turn. Fields hold what belongs to the reply's tokens, rows of unequal length; padded ones are [B, T].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from forgetless.training.grpo import Batch, advantages

__all__ = ["FIELDS", "action_mask", "mini_batch", "placed", "teacher_row", "turn_advantages"]

Tensor: TypeAlias = Any

FIELDS = ("response_mask", "old_log_probs", "advantages", "action_mask", "ref_log_prob", "teacher_log_probs")
"""What the objective needs of a batch; the last two only with a divergence and with distillation."""


def action_mask(reply: int, action: int) -> list[int]:
    """1 for the tokens of the action.

    Args:
        reply: tokens of the reply.
        action: the place at which the action begins.
    """
    return [0] * action + [1] * (reply - action)


def turn_advantages(keys: Sequence[str], rewards: Sequence[float]) -> list[float]:
    """The advantage of each row: that of its episode, among the episodes from the same beginning.

    Args:
        keys: of the rows, BEGINNING_EPISODE_TURN.
        rewards: of the rows; those of an episode are the same.
    """
    groups: dict[str, dict[str, float]] = {}
    for key, reward in zip(keys, rewards, strict=True):
        episode = key.rpartition("_")[0]
        groups.setdefault(episode.rpartition("_")[0], {})[episode] = reward
    gains: dict[str, float] = {}
    for group in groups.values():
        found = advantages(torch.tensor([list(group.values())], dtype=torch.float64))[0].tolist()
        gains |= dict(zip(group, found, strict=True))
    return [gains[key.rpartition("_")[0]] for key in keys]


def teacher_row(reply: Tensor, action: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
    """What the teacher reads and what it is to score, as numbers of tokens.

    A turn without an action that could be read keeps its row, since workers share rows out evenly; its last token
    alone is scored, and `placed` drops that.

    Args:
        reply: tokens of the reply, [T].
        action: its mask, [T].
        history: tokens of the whole history before the action.
    """
    acted = reply[action.bool()]
    return history, acted if len(acted) else reply[-1:]


def placed(scores: Tensor, action: Tensor) -> Tensor:
    """The teacher's log probabilities at the places [T] of the action's tokens, 0 elsewhere."""
    found = torch.zeros(action.shape, dtype=scores.dtype, device=scores.device)
    if action.any():
        found[action.bool()] = scores
    return found


def mini_batch(rows: Mapping[str, Tensor], generated: float, action: float) -> Batch:
    """What the objective needs of a part of a mini-batch.

    Args:
        rows: `FIELDS`, padded to [B, T].
        generated: tokens of replies in the whole mini-batch, over all devices.
        action: tokens of actions in it.
    """
    old = rows["old_log_probs"]
    return Batch(
        old=old,
        reference=rows.get("ref_log_prob"),
        teacher=rows.get("teacher_log_probs"),
        advantage=rows["advantages"][:, 0],  # the same for all tokens of a row
        generated=rows["response_mask"].to(old.dtype),
        action=rows["action_mask"].to(old.dtype),
        generated_total=generated,
        action_total=action,
    )
