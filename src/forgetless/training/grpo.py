"""GRPO over rewritten contexts, with full-history distillation: the objective (CCM, section 4.1, appendix B).

Every turn of an episode is a sample of its own, with the context that the student saw, and shares its episode's
advantage. A frozen copy of the first weights scores the same action tokens under the whole history; where it would
have been surer of them than the student, they are pushed up. Sums are over a mini-batch: a micro-batch's loss is its
share of them, so that gradients add up to the mini-batch's whatever way it is cut.

Shapes: B samples (turns), T tokens of the longest one. Log probabilities and masks are [B, T]; what stands at t is of
the token at t, so prompts and padding are masked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

__all__ = ["Batch", "Terms", "advantages", "gates", "k3", "objective", "token_logps"]

Tensor: TypeAlias = Any
"""A torch tensor; torch has no part in type checking, since most installations do without it."""

EPSILON = 1e-6
"""Added to a group's standard deviation."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The weights of the objective.

    Attributes:
        clip: how far a token's probability may move from that of the rollout before its gradient ends.
        kl: weight of the divergence from the reference (k3).
        distill: weight of the distillation; the paper's 0.01, and 0 for GRPO alone.
        beta: how sharply the gate opens with the teacher's lead.
        grpo: weight of GRPO itself, 0 for distillation alone (the paper's D.1).
    """

    clip: float = 0.2
    kl: float = 0.01
    distill: float = 0.01
    beta: float = 5.0
    grpo: float = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What the objective needs of a mini-batch, or of one part of it.

    Attributes:
        old: [B, T], log probabilities at the rollout.
        reference: [B, T], under the reference weights and the student's context; None without a divergence.
        teacher: [B, T], under the first weights and the whole history, of action tokens; None without distillation.
        advantage: [B], of each sample's episode.
        generated: [B, T], 1 for tokens of memory and action.
        action: [B, T], 1 for tokens of actions that could be read.
        generated_total: tokens in `generated` of the whole mini-batch, over all devices.
        action_total: the same of `action`.
    """

    old: Tensor
    reference: Tensor | None
    teacher: Tensor | None
    advantage: Tensor
    generated: Tensor
    action: Tensor
    generated_total: float
    action_total: float


def advantages(rewards: Tensor) -> Tensor:
    """Rewards [groups, episodes of a group] less the group's mean, over its standard deviation."""
    mean = rewards.mean(-1, keepdim=True)
    return (rewards - mean) / (rewards.std(-1, correction=0, keepdim=True) + EPSILON)


def k3(logps: Tensor, reference: Tensor) -> Tensor:
    """The divergence from the reference, estimated token by token; never below 0, and with its gradient."""
    apart = reference - logps
    return apart.exp() - apart - 1


def gates(logps: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """How much each action token is pushed up, in (0, 1): 0.5 where teacher and student are equally sure."""
    return torch.sigmoid(beta * (teacher - logps)).detach()


def objective(logps: Tensor, batch: Batch, terms: Terms) -> tuple[Tensor, dict[str, float]]:
    """The loss of a part of a mini-batch, and its share of the figures to log.

    Args:
        logps: [B, T], of the student now, with gradient.
        batch: all else.
        terms: the weights.
    """
    mask = batch.generated
    total = max(batch.generated_total, 1.0)
    ratio = torch.exp(torch.where(mask > 0, logps - batch.old, torch.zeros_like(logps)))
    gain = batch.advantage[:, None]
    clipped = ratio.clamp(1 - terms.clip, 1 + terms.clip)
    policy = -(torch.minimum(ratio * gain, clipped * gain) * mask).sum() / total
    loss = terms.grpo * policy
    figures = {
        "policy": policy.item(),
        "clipped": (((ratio - clipped).abs() > 0) * mask).sum().item() / total,
        "entropy": -(logps.detach() * mask).sum().item() / total,
    }
    if terms.kl and batch.reference is not None:
        apart = (torch.where(mask > 0, k3(logps, batch.reference), torch.zeros_like(logps)) * mask).sum() / total
        loss = loss + terms.kl * apart
        figures["kl"] = apart.item()
    if terms.distill and batch.teacher is not None:
        distilled, told = _distill(logps, batch.teacher, batch, terms.beta)
        loss = loss + terms.distill * distilled
        figures |= told
    return loss, figures


def _distill(logps: Tensor, teacher: Tensor, batch: Batch, beta: float) -> tuple[Tensor, dict[str, float]]:
    """The teacher's lead on action tokens, weighed by the gate; its gradient is that of the student's part alone."""
    mask, total = batch.action, max(batch.action_total, 1.0)
    lead = torch.where(mask > 0, teacher.detach() - logps, torch.zeros_like(logps))
    gate = gates(logps, teacher, beta)
    gate = torch.where(mask > 0, gate, torch.zeros_like(gate))
    loss = (gate * lead * mask).sum() / total
    return loss, {
        "distill": loss.item(),
        "gate": (gate * mask).sum().item() / total,
        "gate_open": ((gate > 0.5) * mask).sum().item() / total,
        "lead": (lead.detach() * mask).sum().item() / total,
    }


def token_logps(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Log probabilities [B, T] of tokens [B, T] from logits [B, T, V]; at place 0, which nothing foretells, 0."""
    found = torch.log_softmax(logits[:, :-1].float() / temperature, -1).gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(found, (1, 0))
