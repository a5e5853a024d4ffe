"""CCM's training on verl (0.9): an agent loop of turns, a loss, and a trainer in which the first model teaches.

Importing this registers the agent loop `ccm` and the trainer `ccm` with verl: set the environment variable
`VERL_USE_EXTERNAL_MODULES=forgetless.training.engines.verl`. What verl does by itself stays verl's: sampling, old and
reference log probabilities, splitting, optimiser, checkpoints. Different from it are: each turn is a row, with its
action's mask and its teacher's context; advantages are those of `grpo.advantages` (verl divides by n - 1); the loss is
`grpo.objective`, whole; and the reference model scores each action a second time, after the whole history.
"""

# verl is no dependency of ours: its classes are unknown to type checking.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, TypeAlias
from uuid import uuid4

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.single_controller.base.decorator import Dispatch
from verl.single_controller.base.decorator import register as remote
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from forgetless.errors import ConfigError
from forgetless.registry import load_environment
from forgetless.training.engines.episodes import Chat, episode
from forgetless.training.engines.layout import FIELDS, action_mask, mini_batch, placed, teacher_row, turn_advantages
from forgetless.training.grpo import Terms, objective
from forgetless.training.rollouts import Played, Turn, shaped

__all__ = ["AgentLoop", "Learner", "Output", "Trainer", "Workers", "loss"]

Tensor: TypeAlias = Any

TEACHER = "teacher"
"""The partition in which the teacher's rows wait for their scores."""


class Output(AgentLoopOutput):
    """A turn as verl's agent loops give them, with the mask of its action and its teacher's context."""

    action_mask: list[int]
    teacher_prompt_ids: list[int]

    def as_dict(self) -> dict[str, Any]:
        """The fields of a row."""
        fields: dict[str, Any] = super().as_dict()
        fields["action_mask"] = torch.tensor(fields["action_mask"], dtype=torch.int64)
        fields["teacher_prompts"] = torch.tensor(fields.pop("teacher_prompt_ids"), dtype=torch.int64)
        return fields


@register("ccm")
class AgentLoop(AgentLoopBase):
    """Plays an episode, and gives a row for each of its turns."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[Output]:
        """The turns of the episode whose seed is the row's `index`."""
        settings = self.config.ccm
        server: dict[str, Any] = {}
        started = perf_counter()

        async def generate(prompt: list[int]) -> tuple[list[int], list[float]]:
            reply = await self.server_manager.generate(
                request_id=uuid4().hex, prompt_ids=prompt, sampling_params=dict(sampling_params)
            )
            server.update(reply.extra_fields)
            most = self.rollout_config.response_length
            return list(reply.token_ids[:most]), list((reply.log_probs or [])[:most])

        played = await episode(
            load_environment(settings.environment, **settings.options),
            int(row["index"]),
            generate,
            Chat(self.tokenizer, **self.apply_chat_template_kwargs),
            turns=settings.turns,
            longest=self.rollout_config.prompt_length,
        )
        common = {
            "reward_score": shaped(played.reward, settings.exact, settings.partial),
            "num_turns": len(played.turns),
            "metrics": {"generate_sequences": perf_counter() - started},
            "extra_fields": {**server, "reward_extra_info": _told(played)},
        }
        return [_output(turn, settings.history, common) for turn in played.turns]


def _told(played: Played) -> dict[str, float]:
    """Figures of an episode, which verl averages at validation; `reward` is a name of its own."""
    turns = max(len(played.turns), 1)
    return {
        "success": float(played.reward > 1 - 1e-6),
        "score": played.reward,
        "wrote": sum(turn.wrote for turn in played.turns) / turns,
        "broken": played.broken / turns,
        "invalid": played.invalid / turns,
        "input_tokens": float(sum(len(turn.prompt) for turn in played.turns)),
    }


def _output(turn: Turn, history: int, common: dict[str, Any]) -> Output:
    """A row; a turn whose history is too long for the teacher is not distilled."""
    fits = len(turn.teacher) + len(turn.reply) <= history
    return Output(
        prompt_ids=turn.prompt,
        response_ids=turn.reply,
        response_mask=[1] * len(turn.reply),
        response_logprobs=turn.old or None,
        action_mask=action_mask(len(turn.reply), turn.action if fits else len(turn.reply)),
        teacher_prompt_ids=turn.teacher if fits else turn.teacher[:1],
        **common,
    )


def loss(model_output: dict[str, Any], data: TensorDict, *, terms: Terms, **_: Any) -> tuple[Tensor, dict[str, Any]]:
    """The objective of a micro-batch: its share of the mini-batch's, times the devices whose gradients are averaged.

    Args:
        model_output: has `log_probs`, of all tokens of all rows in one line.
        data: the rows, with the totals of the mini-batch over all devices.
        terms: the objective's weights.
        _: verl's group of devices, whose totals stand in the data already.
    """
    logps = no_padding_2_padding(model_output["log_probs"], data)
    rows = data.select(*(name for name in FIELDS if name in data)).to_padded_tensor()
    batch = mini_batch(rows, data["batch_num_tokens"], data["action_num_tokens"])
    found, figures = objective(logps, batch, terms)
    scale = data["dp_size"]
    told = {f"ccm/{name}": Metric(AggregationType.SUM, value * scale) for name, value in figures.items()}
    return found * scale, told


class Learner(TrainingWorker):
    """A training worker that counts a mini-batch's action tokens, over all devices, before it is split."""

    def train_batch(self, data: TensorDict) -> Any:
        """One step of the optimiser."""
        total = torch.stack([row.sum() for row in data["action_mask"].unbind()]).sum().to(self.device_name)
        torch.distributed.all_reduce(total, group=self.engine.get_data_parallel_group())
        tu.assign_non_tensor(data, action_num_tokens=total.item())
        return super().train_batch(data)


class Workers(ActorRolloutRefWorker):
    """verl's workers, with ours as the one that learns."""

    actor_worker_cls = Learner

    @remote(dispatch_mode=Dispatch.ONE_TO_ALL)
    def learn(self, terms: Terms) -> None:
        """Take our loss."""
        self.actor.set_loss_fn(partial(loss, terms=terms))


@register_trainer("ccm")
class Trainer(PPOTrainerSync):
    """verl's synchronous trainer, with advantages of episodes and a teacher that knows the whole history."""

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = "sync"  # our name is not known to verl's comparisons
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.ActorRolloutRef, Role.ActorRollout):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(Workers)

    def _setup(self) -> None:
        self.terms = _terms(self.config)
        super()._setup()
        self.actor_rollout_wg.learn(self.terms)

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Log probabilities under the first weights: of replies as they came, and of actions after the history."""
        batch = super()._compute_ref_log_prob(batch, metrics)
        if not self.terms.distill:
            return batch
        names = ["responses", "response_mask", "action_mask", "teacher_prompts"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        replies, masks, actions, histories = (data[name].unbind() for name in names)
        # Rows that verl added to fill up a batch keep the action's mask of the row that they were copied from.
        actions = [action[: len(mask)] * mask for action, mask in zip(actions, masks, strict=True)]
        rows = list(map(teacher_row, replies, actions, histories))
        scores = self._taught(batch, rows)
        fields = {
            "action_mask": _nested(actions),
            "teacher_log_probs": _nested(list(map(placed, scores, actions))),
        }
        put = TensorDict(fields, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=put)
        return batch

    def _taught(self, batch: Any, rows: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """The teacher's log probabilities of the second of each row after the first, by the workers' reference."""
        partition = f"{TEACHER}_{batch.partition_id}"
        lengths = [len(history) + len(action) for history, action in rows]
        whole = [torch.cat(row) for row in rows]
        fields = {
            "prompts": _nested([history for history, _ in rows]),
            "responses": _nested([action for _, action in rows]),
            "input_ids": _nested(whole),
            "position_ids": _nested([torch.arange(length) for length in lengths]),
            **{name: _nested([torch.ones_like(row) for _, row in rows]) for name in ("response_mask", "loss_mask")},
        }
        tags = [{**tag, "seq_len": length} for tag, length in zip(batch.tags, lengths, strict=True)]
        put = TensorDict(fields, batch_size=len(rows))
        asked = tq.kv_batch_put(keys=batch.keys, partition_id=partition, fields=put, tags=tags)
        asked.extra_info = dict(batch.extra_info)  # as for the reference: temperature, no loss, and the adapter off
        score = self.actor_rollout_wg.compute_log_prob if self.ref_in_actor else self.ref_policy_wg.compute_ref_log_prob
        score(asked)
        found = tq.kv_batch_get(keys=batch.keys, partition_id=partition, select_fields=["log_probs"])["log_probs"]
        tq.kv_clear(keys=batch.keys, partition_id=partition)
        # What stands at t is of token t + 1.
        return [line[len(history) - 1 : -1] for line, (history, _) in zip(found.unbind(), rows, strict=True)]

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        names = ["response_mask", "rm_scores"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        gains = turn_advantages(batch.keys, [float(row.sum()) for row in data["rm_scores"].unbind()])
        rows = _nested([gain * mask.float() for gain, mask in zip(gains, data["response_mask"].unbind(), strict=True)])
        fields = TensorDict({"advantages": rows, "returns": rows}, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def _terms(config: Any) -> Terms:
    """The objective's weights, of verl's settings and ours.

    Raises:
        ConfigError: something is asked for that the objective does not have.
    """
    actor, settings = config.actor_rollout_ref.actor, config.ccm
    if config.algorithm.use_kl_in_reward or actor.entropy_coeff or actor.loss_agg_mode != "token-mean":
        raise ConfigError(
            "CCM's objective has no KL in the reward, no entropy term, and means over tokens: set "
            "algorithm.use_kl_in_reward=false, actor.entropy_coeff=0, actor.loss_agg_mode=token-mean"
        )
    if settings.distill and not actor.use_kl_loss:
        raise ConfigError("distillation needs the first weights: set actor.use_kl_loss=true (kl_loss_coef may be 0)")
    kl = actor.kl_loss_coef if actor.use_kl_loss else 0.0
    return Terms(clip=actor.clip_ratio, kl=kl, distill=settings.distill, beta=settings.beta, grpo=settings.grpo)


def _nested(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
