"""The objective of CCM's training: what it is, which tokens it moves, and that parts add up to the whole."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from forgetless.training.grpo import Batch, Terms, advantages, objective, token_logps  # noqa: E402

pytestmark = pytest.mark.torch

B, T = 5, 9


def drawn(seed: int, *, dtype: Any = torch.float64) -> tuple[Any, Batch]:
    """Random log probabilities and a batch in which some samples hold no action that could be read."""
    g = torch.Generator().manual_seed(seed)
    near = lambda scale: -torch.rand(B, T, generator=g, dtype=dtype) * 3 - 0.01 + 0 * scale  # noqa: E731
    logps = near(1).requires_grad_()
    generated = (torch.rand(B, T, generator=g) < 0.7).to(dtype)
    action = generated * (torch.rand(B, T, generator=g) < 0.5).to(dtype)
    action[1] = 0
    advantage = torch.randn(B, generator=g, dtype=dtype)
    old = logps.detach() + 0.4 * torch.randn(B, T, generator=g, dtype=dtype)
    sums = generated.sum().item(), action.sum().item()
    return logps, Batch(old, near(1), near(1), advantage, generated, action, *sums)


def plain(logps: Any, batch: Batch, terms: Terms) -> float:
    """The same in Python's own numbers, token by token, from the formulas."""
    policy = apart = distilled = 0.0
    for i in range(B):
        for t in range(T):
            now, old = logps[i, t].item(), batch.old[i, t].item()
            if batch.generated[i, t]:
                gain = batch.advantage[i].item()
                ratio = exp(now - old)
                policy -= min(ratio * gain, min(max(ratio, 1 - terms.clip), 1 + terms.clip) * gain)
                d = batch.reference[i, t].item() - now  # type: ignore[index]
                apart += exp(d) - d - 1
            if batch.action[i, t]:
                lead = batch.teacher[i, t].item() - now  # type: ignore[index]
                distilled += lead / (1 + exp(-terms.beta * lead))
    found = terms.grpo * policy + terms.kl * apart
    return found / batch.generated_total + terms.distill * distilled / batch.action_total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "terms", [Terms(), Terms(kl=0.3, distill=0.7, clip=0.05), Terms(grpo=0.0), Terms(distill=0.0, kl=0.0)]
)
def test_the_loss_is_that_of_the_formulas(seed: int, terms: Terms) -> None:
    logps, batch = drawn(seed)
    loss, _ = objective(logps, batch, terms)
    assert loss.item() == pytest.approx(plain(logps.detach(), batch, terms), abs=1e-6)


def test_distillation_moves_action_tokens_alone_each_by_its_gate() -> None:
    logps, batch = drawn(3)
    teacher = batch.teacher.clone().requires_grad_()  # type: ignore[union-attr]
    batch = Batch(batch.old, None, teacher, batch.advantage, batch.generated, batch.action,
                  batch.generated_total, batch.action_total)  # fmt: skip
    loss, _ = objective(logps, batch, Terms(grpo=0.0, kl=0.0, distill=1.0))
    loss.backward()
    gate = torch.sigmoid(5 * (teacher.detach() - logps.detach()))
    assert torch.allclose(logps.grad, -batch.action * gate / batch.action_total, atol=1e-12)
    assert teacher.grad is None  # the teacher is a constant, and the gate with it
    memory = (batch.generated > 0) & (batch.action == 0)
    assert memory.any()
    assert not logps.grad[memory].any()


def test_grpo_moves_memory_tokens_too_and_nothing_else() -> None:
    logps, batch = drawn(4)
    objective(logps, batch, Terms(distill=0.0, kl=0.0, clip=1e9))[0].backward()
    moved = logps.grad != 0
    assert torch.equal(moved, batch.generated > 0)


def test_what_has_moved_too_far_is_not_pushed_on() -> None:
    logps = torch.tensor([[-1.0, -1.0, -1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-2.0, -1.0, -1.05, -0.2]], dtype=torch.float64)  # ratios above, at, near and below 1
    ones = torch.ones(1, 4, dtype=torch.float64)
    for gain, expected in ((1.0, [False, True, True, True]), (-1.0, [True, True, True, False])):
        logps.grad = None
        batch = Batch(old, None, None, torch.tensor([gain], dtype=torch.float64), ones, ones, 4.0, 4.0)
        objective(logps, batch, Terms(distill=0.0, kl=0.0))[0].backward()
        assert (logps.grad[0] != 0).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    logps, batch = drawn(seed)
    objective(logps, batch, Terms(kl=0.2, distill=0.5))[0].backward()
    whole, logps.grad = logps.grad.clone(), None
    figures: dict[str, float] = {}
    for rows in (slice(0, 2), slice(2, 3), slice(3, B)):
        part = Batch(
            batch.old[rows], batch.reference[rows], batch.teacher[rows],  # type: ignore[index]
            batch.advantage[rows], batch.generated[rows], batch.action[rows], batch.generated_total, batch.action_total,
        )  # fmt: skip
        loss, told = objective(logps[rows], part, Terms(kl=0.2, distill=0.5))
        loss.backward()
        figures = {key: figures.get(key, 0.0) + value for key, value in told.items()}
    assert torch.allclose(logps.grad, whole, atol=1e-12)
    assert figures == pytest.approx(objective(logps, batch, Terms(kl=0.2, distill=0.5))[1])


def test_near_the_teacher_it_is_the_reverse_divergence_a_quarter_of_beta_strong() -> None:
    """Summed over what a student may sample: the gate's even part cancels, since mean scores are zero."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(7, generator=g, dtype=torch.float64).requires_grad_()
    other = (logits + 0.02 * torch.randn(7, generator=g, dtype=torch.float64)).detach()
    logps, teacher = torch.log_softmax(logits, -1), torch.log_softmax(other, -1)
    chances = logps.exp().detach()
    beta = 5.0
    ones = torch.ones(7, 1, dtype=torch.float64)
    total = 0.0
    for token in range(7):
        batch = Batch(
            logps.detach()[token].view(1, 1), None, teacher[token].view(1, 1), torch.zeros(1, dtype=torch.float64),
            ones[:1], ones[:1], 1.0, 1.0,
        )  # fmt: skip
        loss, _ = objective(logps[token].view(1, 1), batch, Terms(grpo=0.0, kl=0.0, distill=1.0, beta=beta))
        total = total + chances[token] * loss
    (step,) = torch.autograd.grad(total, logits, retain_graph=True)
    divergence = (logps.exp() * (logps - teacher)).sum()
    (reverse,) = torch.autograd.grad(divergence, logits)
    assert torch.allclose(step, beta / 4 * reverse, rtol=0.03, atol=1e-6)


def test_advantages_are_of_the_group() -> None:
    rewards = torch.tensor([[0.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    found = advantages(rewards)
    assert torch.allclose(found[0], torch.tensor([-1.0, 1.0, 1.0, -1.0], dtype=torch.float64), atol=1e-5)
    assert not found[1].any()  # a group that agrees says nothing


def test_a_turn_by_turn_batch_is_the_episode_where_contexts_are_prefixes() -> None:
    """One causal model: turns as samples with their history before them, or one sequence with all turns in it."""
    torch.manual_seed(0)
    embed = torch.nn.Embedding(11, 16)
    rnn = torch.nn.GRU(16, 16, batch_first=True)
    head = torch.nn.Linear(16, 11)

    def logps(rows: Any) -> Any:
        return token_logps(head(rnn(embed(rows))[0]), rows)

    episode = torch.randint(11, (1, 12))
    said = torch.zeros(1, 12)
    turns = [(2, 5), (7, 9), (10, 12)]  # where the agent wrote
    for start, end in turns:
        said[0, start:end] = 1
    gain, total = torch.tensor([0.7]), float(said.sum())

    def loss(rows: Any, mask: Any, gains: Any) -> Any:
        now = logps(rows)
        old = now.detach() - 0.1
        batch = Batch(old, old - 0.2, old + 0.3, gains, mask, mask, total, total)
        return objective(now, batch, Terms(distill=0.5, kl=0.1))[0]

    parameters = [*embed.parameters(), *rnn.parameters(), *head.parameters()]
    whole = torch.autograd.grad(loss(episode, said, gain), parameters)
    parts = None
    for start, end in turns:
        mask = torch.zeros(1, end)
        mask[0, start:end] = 1
        found = torch.autograd.grad(loss(episode[:, :end], mask, gain), parameters)
        parts = found if parts is None else [a + b for a, b in zip(parts, found, strict=True)]
    for one, other in zip(whole, parts, strict=True):  # type: ignore[arg-type]
        assert torch.allclose(one, other, atol=1e-6)
