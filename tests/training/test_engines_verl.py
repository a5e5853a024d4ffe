"""CCM on verl's own classes: rows, masks, loss, the teacher's pass, and settings. Skipped where verl is not installed.

No GPU and no server of a model: what samples and what computes log probabilities here is a stand-in on the CPU; rows
go through verl's agent loop outputs, its tensor layouts, its splitting, and a real TransferQueue.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of engines that are not installed
    pytest.importorskip("verl", reason="needs verl")
    pytest.importorskip("transfer_queue", reason="needs TransferQueue")
    import numpy as np
    import ray
    import transfer_queue as tq
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.protocol import DataProto
    from verl.single_controller.base.decorator import MAGIC_ATTR
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.engine.utils import prepare_micro_batches
    from verl.workers.rollout.replica import TokenOutput

    from forgetless.environments.recall import Recall
    from forgetless.errors import ConfigError
    from forgetless.training.demonstrations import forgetful
    from forgetless.training.engines import CONFIGS
    from forgetless.training.engines import verl as ours
    from forgetless.training.engines.episodes import write_seeds
    from forgetless.training.engines.layout import turn_advantages
    from forgetless.training.grpo import Batch, Terms, objective
    from forgetless.training.rollouts import Turn

# Warnings here are those of Ray and of verl's parts.
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

COMMON: dict[str, Any] = {
    "reward_score": 1.5,
    "num_turns": 2,
    "metrics": {"generate_sequences": 0.5},
    "extra_fields": {"reward_extra_info": {"success": 1.0}, "min_global_steps": 3},
}


def rows_of(turns: list[Turn], history: int = 10_000) -> TensorDict:
    """Turns as verl keeps them: what its agent loop worker makes of outputs."""
    made = []
    for turn in turns:
        row = ours._output(turn, history, COMMON).as_dict()
        row |= {"loss_mask": row["response_mask"], "input_ids": torch.cat([row["prompts"], row["responses"]])}
        made.append({**row, "position_ids": torch.arange(len(row["input_ids"]))})
    return tu.list_of_dict_to_tensordict(made)


def turns_of(seed: int, many: int = 6) -> list[Turn]:
    draw = Random(seed)
    numbers = lambda low, high: [draw.randrange(2, 90) for _ in range(draw.randrange(low, high))]  # noqa: E731
    turns = []
    for at in range(many):
        reply = numbers(3, 9)
        action = len(reply) if at == 1 else draw.randrange(len(reply))
        turns.append(Turn(numbers(2, 7), reply, [-draw.random() for _ in reply], action, numbers(2, 12), True))
    return turns


def nested(rows: list[Any]) -> Any:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def test_a_turn_is_a_row_of_verl_s() -> None:
    turn = turns_of(0)[0]
    row = ours._output(turn, 10_000, COMMON).as_dict()
    assert row["prompts"].tolist() == turn.prompt
    assert row["responses"].tolist() == turn.reply
    assert row["response_mask"].tolist() == [1] * len(turn.reply)
    assert row["action_mask"].tolist() == [0] * turn.action + [1] * (len(turn.reply) - turn.action)
    assert row["teacher_prompts"].tolist() == turn.teacher
    assert row["rollout_log_probs"].tolist() == pytest.approx(turn.old)
    assert row["rm_scores"].sum() == 1.5
    far = ours._output(turn, len(turn.teacher), COMMON).as_dict()
    assert far["action_mask"].sum() == 0
    assert far["teacher_prompts"].tolist() == turn.teacher[:1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("terms", [Terms(), Terms(distill=0.7, kl=0.3), Terms(distill=0.0, kl=0.0), Terms(grpo=0.0)])
def test_the_loss_of_verl_s_micro_batches_is_the_objective(seed: int, terms: Terms) -> None:
    turns = turns_of(seed)
    data = rows_of(turns)
    g = torch.Generator().manual_seed(seed)
    near = lambda: [-2 * torch.rand(len(turn.reply), generator=g, dtype=torch.float64) for turn in turns]  # noqa: E731
    old, reference, teacher = near(), near(), near()
    gains = torch.randn(len(turns), generator=g, dtype=torch.float64)
    data["old_log_probs"], data["ref_log_prob"], data["teacher_log_probs"] = map(nested, (old, reference, teacher))
    data["advantages"] = nested(
        [gain * torch.ones(len(turn.reply), dtype=torch.float64) for gain, turn in zip(gains, turns, strict=True)]
    )
    lines = [
        (-2 * torch.rand(len(turn.prompt) + len(turn.reply), generator=g, dtype=torch.float64)).requires_grad_()
        for turn in turns
    ]
    said, acted = sum(len(turn.reply) for turn in turns), sum(len(turn.reply) - turn.action for turn in turns)
    tu.assign_non_tensor(data, batch_num_tokens=said, action_num_tokens=acted, dp_size=2, use_dynamic_bsz=False)
    tu.assign_non_tensor(data, micro_batch_size_per_gpu=2, sp_size=1)
    data["row"] = torch.arange(len(turns))
    total, figures = 0.0, []
    for part in prepare_micro_batches(data)[0]:
        logps = nested([lines[at] for at in part["row"].tolist()])
        found, told = ours.loss(model_output={"log_probs": logps}, data=part, dp_group=None, terms=terms)
        total = total + found
        figures.append(told)

    # The same by hand: what stands at t of a line is of token t + 1.
    width = max(len(turn.reply) for turn in turns)
    pad = lambda rows: torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])  # noqa: E731
    mine = [line.detach().clone().requires_grad_() for line in lines]
    logps = pad([line[len(turn.prompt) - 1 : -1] for line, turn in zip(mine, turns, strict=True)])
    generated = pad([torch.ones(len(turn.reply), dtype=torch.float64) for turn in turns])
    action = pad([torch.tensor([0.0] * turn.action + [1.0] * (len(turn.reply) - turn.action)) for turn in turns])
    batch = Batch(pad(old), pad(reference), pad(teacher), gains, generated, action, said, acted)
    wanted, plain = objective(logps, batch, terms)
    assert total.item() / 2 == pytest.approx(wanted.item(), abs=1e-9)
    for name, value in plain.items():
        assert sum(told[f"ccm/{name}"].aggregate() for told in figures) / 2 == pytest.approx(value, abs=1e-9)
    total.backward()
    wanted.backward()
    for line, other in zip(lines, mine, strict=True):
        assert torch.allclose(line.grad / 2, other.grad, atol=1e-12)


def test_a_learner_counts_the_actions_of_all_its_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        learner = object.__new__(ours.Learner)
        learner.device_name = "cpu"
        learner.engine = SimpleNamespace(get_data_parallel_group=lambda: None)
        monkeypatch.setattr(ours.TrainingWorker, "train_batch", lambda _, data: data["action_num_tokens"])
        turns = turns_of(3)
        assert learner.train_batch(rows_of(turns)) == sum(len(turn.reply) - turn.action for turn in turns)
    finally:
        torch.distributed.destroy_process_group()


def test_a_step_of_verl_s_own_engine_is_the_step_by_hand(tmp_path: Path) -> None:
    script = Path(__file__).with_name("verl_on_cpu.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert {"loss", "norm", "apart", "policy", "kl", "distill", "gate"} <= figures.keys()
    for name, (theirs, here) in figures.items():
        assert theirs == pytest.approx(here, rel=1e-4, abs=1e-5), name


def test_what_is_registered() -> None:
    assert get_trainer_cls("ccm") is ours.Trainer
    taken: list[Any] = []
    workers = object.__new__(ours.Workers)
    workers.actor = SimpleNamespace(set_loss_fn=taken.append)
    workers.learn(Terms(beta=3.0))
    assert taken[0].func is ours.loss
    assert taken[0].keywords == {"terms": Terms(beta=3.0)}
    assert hasattr(ours.Workers.learn, MAGIC_ATTR)  # verl's trainer finds it on its workers
    assert _agent_loop_registry["ccm"]["_target_"] == "forgetless.training.engines.verl.AgentLoop"
    assert ours.Workers.actor_worker_cls is ours.Learner


class Letters:
    """A tokenizer of single characters, with a chat template."""

    eos_token_id = 0

    def decode(self, numbers: Any, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(chr(one) for one in numbers if one)

    def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
        return [ord(one) for message in messages for one in f"{message['role']}:{message['content']}\n"]


def test_an_agent_loop_gives_the_turns_of_an_episode() -> None:
    world = Recall(codes=1, pages=2, distance=1, words=0)
    said = iter([one.reply for one in forgetful(world, 7, 0.0, Random(0))])
    seen: list[list[int]] = []

    class Server:
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
            assert sampling_params == {"temperature": 1.0}
            seen.append(prompt_ids)
            reply = [*map(ord, next(said)), 0]
            extra = {"min_global_steps": len(seen), "max_global_steps": len(seen)}
            return TokenOutput(token_ids=reply, log_probs=[-0.5] * len(reply), extra_fields=extra)

    loop = object.__new__(ours.AgentLoop)
    options = {"codes": 1, "pages": 2, "distance": 1, "words": 0}
    settings = {
        "environment": "recall",
        "options": options,
        "turns": 20,
        "exact": 10.0,
        "partial": 2.0,
        "history": 9999,
    }
    loop.config = OmegaConf.create({"ccm": settings})
    loop.rollout_config = SimpleNamespace(response_length=500, prompt_length=5000)
    loop.server_manager, loop.tokenizer, loop.apply_chat_template_kwargs = Server(), Letters(), {}
    outputs = asyncio.run(loop.run({"temperature": 1.0}, index=torch.tensor(7), raw_prompt=[]))
    assert [one.prompt_ids for one in outputs] == seen
    assert {one.reward_score for one in outputs} == {10.0}
    assert all(one.num_turns == len(outputs) > 2 for one in outputs)
    told = outputs[-1].extra_fields["reward_extra_info"]
    assert (told["success"], told["score"]) == (1.0, 1.0)
    assert "reward" not in told  # verl adds it, and would count it twice
    assert outputs[-1].extra_fields["max_global_steps"] == len(seen)
    last = outputs[-1]
    acted = [one for one, on in zip(last.response_ids, last.action_mask, strict=True) if on]
    action = Letters().decode(acted, skip_special_tokens=True)
    assert "answer " in action
    assert "memory>" not in action
    history = Letters().decode(last.teacher_prompt_ids, skip_special_tokens=True)
    assert history.startswith("user:")
    assert "<memory>" not in history


def test_verl_s_own_advantages_differ_from_ours_by_the_deviation_of_a_sample() -> None:
    keys = [f"u_{episode}_{turn}" for episode in range(4) for turn in range(episode + 1)]
    rewards = {0: 0.0, 1: 1.0, 2: 2.0, 3: 5.0}
    mask = torch.ones(len(keys), 3)
    token = torch.zeros(len(keys), 3)
    token[:, -1] = torch.tensor([rewards[int(key.split("_")[1])] for key in keys])
    data = DataProto(batch=TensorDict({"token_level_rewards": token, "response_mask": mask}, batch_size=len(keys)))
    data.non_tensor_batch["uid"] = np.array(["u"] * len(keys), dtype=object)
    theirs = compute_advantage_for_multi_trajectories(data, keys, adv_estimator="grpo").batch["advantages"][:, 0]
    found = turn_advantages(keys, token.sum(-1).tolist())
    assert torch.allclose(theirs.double() * (4 / 3) ** 0.5, torch.tensor(found, dtype=torch.float64), atol=1e-5)


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
    """A real TransferQueue, in Ray on this machine."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    tq.init()
    yield
    tq.close()
    ray.shutdown()


class Reference:
    """Computes log probabilities that tell of which token, at which place, and after what they are."""

    def compute_ref_log_prob(self, batch: Any) -> Any:
        assert batch.extra_info["temperature"] == 0.7
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["input_ids", "position_ids"]
        )
        scores = []
        for tokens, places in zip(data["input_ids"].unbind(), data["position_ids"].unbind(), strict=True):
            assert places.tolist() == list(range(len(tokens)))
            before = tokens.cumsum(0)
            scores.append(-(before + tokens.roll(-1) / 1000).float())  # at t: what stood before token t + 1, and it
        put = TensorDict({"log_probs": nested(scores)}, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=put)
        return batch


def test_the_teacher_scores_the_same_actions_after_the_whole_history(queue: None) -> None:
    turns = turns_of(5)
    keys = [f"u_{at // 3}_{at % 3}" for at in range(6)]
    tags = [{"seq_len": len(turn.prompt) + len(turn.reply)} for turn in turns]
    data = rows_of(turns)
    batch = tq.kv_batch_put(keys=keys, partition_id="train", fields=data, tags=tags)
    batch = upsample_batch_to_divisible_size(batch, 4, 0)
    assert len(batch) == 8

    trainer = object.__new__(ours.Trainer)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"temperature": 0.7}}})
    trainer.terms, trainer.ref_in_actor, trainer.ref_policy_wg = Terms(), False, Reference()
    trainer._compute_ref_log_prob(batch, {})
    trainer._compute_advantage(batch, {})
    names = ["teacher_log_probs", "action_mask", "ref_log_prob", "advantages"]
    found = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
    fields = {name: [row.tolist() for row in found[name].unbind()] for name in names}
    for at, turn in enumerate(turns):
        for name, history, reply in (
            ("ref_log_prob", turn.prompt, turn.reply),
            ("teacher_log_probs", turn.teacher, turn.reply[turn.action :]),
        ):
            whole = [*history, *reply]
            wanted = [-(sum(whole[:n]) + whole[n] / 1000) for n in range(len(history), len(whole))]
            assert fields[name][at] == pytest.approx([0.0] * (len(turn.reply) - len(reply)) + wanted, rel=1e-5)
        assert sum(fields["action_mask"][at]) == len(turn.reply) - turn.action
        assert fields["advantages"][at] == pytest.approx([0.0] * len(turn.reply))  # all rewards are the same here
    for at in (6, 7):
        assert fields["action_mask"][at] == fields["teacher_log_probs"][at] == [0.0]
    assert not tq.kv_list("teacher_train").get("teacher_train")


@pytest.mark.parametrize(
    ("name", "turns", "steps", "weights"),
    [("verl_webshop", 15, 100, (10.0, 2.0)), ("verl_terminal", 16, 60, (1.0, 0.0))],
)
def test_the_paper_s_settings_are_settings_of_verl_s(
    tmp_path: Path, name: str, turns: int, steps: int, weights: tuple[float, float]
) -> None:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose(
            name,
            overrides=["hydra.searchpath=[pkg://verl.trainer.config]", "ccm.options.data=data"],
            return_hydra_config=False,
        )
    assert ours._terms(config) == Terms(clip=0.2, kl=0.01, distill=0.01, beta=5.0, grpo=1.0)
    assert (config.ccm.turns, config.trainer.total_training_steps) == (turns, steps)
    assert (config.ccm.exact, config.ccm.partial) == weights
    assert config.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu >= config.ccm.history
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    write_seeds(tmp_path / "seeds.jsonl", range(500, 503), config.ccm.environment)
    rows = RLHFDataset([str(tmp_path / "seeds.jsonl")], Letters(), config.data)
    assert [int(rows[at]["index"]) for at in range(len(rows))] == [500, 501, 502]
    assert rows[0]["agent_name"] == config.actor_rollout_ref.rollout.agent.default_agent_loop == "ccm"
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.kl_loss_coef == 0.01
    assert omega_conf_to_dataclass(config.actor_rollout_ref.rollout).val_kwargs.do_sample
    OmegaConf.set_struct(config, False)
    config.actor_rollout_ref.actor.use_kl_loss = False
    with pytest.raises(ConfigError, match="use_kl_loss"):
        ours._terms(config)
    config.actor_rollout_ref.actor.entropy_coeff = 0.1
    with pytest.raises(ConfigError, match="entropy"):
        ours._terms(config)
