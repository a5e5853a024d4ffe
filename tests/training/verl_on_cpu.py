"""A step of verl's own FSDP engine on the CPU with our learner and loss, and the same step by hand, as JSON.

    PYTHON verl_on_cpu.py FOLDER

verl knows no CPU as a device of training, so one is made known to it here: nothing else of it is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", CUDA_VISIBLE_DEVICES="")

import torch
import verl.plugin.platform.platform_manager as platforms
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from verl.plugin.platform.platform_base import PlatformBase

from forgetless.training.grpo import Batch, Terms, objective, token_logps
from forgetless.training.rollouts import Turn

TEMPERATURE = 0.7
TERMS = Terms(distill=0.7, kl=0.3)


class NoMemory:
    """torch.cpu, with the figures of memory that other devices have."""

    def __getattr__(self, name: str) -> Any:
        if "memory" in name or name == "mem_get_info":
            return lambda *_: (0, 0) if name == "mem_get_info" else 0
        return getattr(torch.cpu, name)


class OnCpu(PlatformBase):
    """The CPU as verl asks a device about itself."""

    device_name = vendor_name = "cpu"
    device_module = NoMemory()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def _nothing(self, *_: Any) -> None:
        """What a CPU does not have."""

    set_device = synchronize = manual_seed = manual_seed_all = set_allocator_settings = empty_cache = _nothing
    get_device_capability = profiler_start = profiler_stop = cudart = _nothing
    ray_resource_name = ray_noset_envvars = is_ipc_supported = _nothing


def turns() -> list[Turn]:
    """Turns of random tokens; the second has no action."""
    draw = Random(1)
    numbers = lambda low, high: [draw.randrange(2, 90) for _ in range(draw.randrange(low, high))]  # noqa: E731
    made = []
    for at in range(6):
        reply = numbers(3, 9)
        action = len(reply) if at == 1 else draw.randrange(len(reply))
        made.append(Turn(numbers(2, 7), reply, [-draw.random() for _ in reply], action, numbers(2, 12), True))
    return made


def write_model(folder: str) -> None:
    """A tiny Llama with a tokenizer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=96, bos_token_id=None, eos_token_id=0, pad_token_id=0, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{at}": at for at in range(96)}, unk_token="w1"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0").save_pretrained(folder)


def learner(folder: str) -> Any:
    """Our training worker on verl's engine."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.engine_workers import TrainingWorkerConfig

    from forgetless.training.engines.verl import Learner, loss

    there = type("OnCpu", (FSDPEngineWithLMHead,), {})
    EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(there)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    exact = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32")
    parts = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2, "infer_micro_batch_size_per_gpu": 2}
    config = TrainingWorkerConfig(
        model_type="language_model",
        model_config=HFModelConfig(
            path=folder,
            use_remove_padding=False,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "eager"},
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            use_torch_compile=False,
            dtype="float32",
            model_dtype="fp32",
            mixed_precision=exact,
            **parts,
        ),
        optimizer_config=FSDPOptimizerConfig(lr=1e-2, weight_decay=0.0, total_training_steps=10, clip_grad=1.0),
        checkpoint_config=CheckpointConfig(),
    )
    made = Learner(config)
    made.reset()
    made.flops_counter = None  # asks for a GPU's name
    made.set_loss_fn(partial(loss, terms=TERMS))
    return made


def main(folder: str) -> None:
    """Take the step twice."""
    platforms._current_platform = OnCpu()
    from verl.utils import tensordict_utils as tu

    from forgetless.training.engines.verl import _output

    write_model(folder)
    acting = learner(folder)
    common = {"reward_score": 1.0, "num_turns": 1, "metrics": {}, "extra_fields": {"reward_extra_info": {}}}
    samples, rows = turns(), []
    for turn in samples:
        row = _output(turn, 9_999, common).as_dict()
        row |= {"loss_mask": row["response_mask"], "input_ids": torch.cat([row["prompts"], row["responses"]])}
        rows.append({**row, "position_ids": torch.arange(len(row["input_ids"]))})
    data = tu.list_of_dict_to_tensordict(rows)
    draw = torch.Generator().manual_seed(0)
    nested = lambda each: torch.nested.as_nested_tensor(each, layout=torch.jagged)  # noqa: E731
    near = lambda: [-4 - torch.rand(len(turn.reply), generator=draw) for turn in samples]  # noqa: E731
    old, reference, teacher, gains = near(), near(), near(), torch.randn(6, generator=draw)
    data["old_log_probs"], data["ref_log_prob"], data["teacher_log_probs"] = map(nested, (old, reference, teacher))
    data["advantages"] = nested([gain * torch.ones(len(turn.reply)) for gain, turn in zip(gains, samples, strict=True)])
    tu.assign_non_tensor(data, temperature=TEMPERATURE, global_batch_size=6, mini_batch_size=6, epochs=1, seed=1)
    tu.assign_non_tensor(data, dataloader_kwargs={"shuffle": False})

    plain = LlamaForCausalLM.from_pretrained(folder)
    lines = []
    for turn in samples:
        tokens = torch.tensor([turn.prompt + turn.reply])
        lines.append(token_logps(plain(tokens).logits, tokens, TEMPERATURE)[0][len(turn.prompt) :])
    width = max(map(len, lines))
    pad = lambda each: torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in each])  # noqa: E731
    said = [torch.ones(len(turn.reply)) for turn in samples]
    acted = [torch.tensor([0.0] * turn.action + [1.0] * (len(turn.reply) - turn.action)) for turn in samples]
    totals = float(sum(map(len, said))), float(sum(row.sum() for row in acted))
    batch = Batch(pad(old), pad(reference), pad(teacher), gains, pad(said), pad(acted), *totals)
    wanted, figures = objective(pad(lines), batch, TERMS)
    wanted.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)

    asked = data.clone()
    tu.assign_non_tensor(asked, compute_loss=False)
    seen = acting.infer_batch(asked)["log_probs"].unbind()
    found = [row[len(turn.prompt) - 1 : -1] for row, turn in zip(seen, samples, strict=True)]
    told = tu.get(acting.train_mini_batch(data), "metrics")
    apart = max(float((one - other.detach()).abs().max()) for one, other in zip(found, lines, strict=True))
    both = {
        "loss": (told["loss"][0], wanted.item()),
        "norm": (told["grad_norm"][0], norm.item()),
        "apart": (apart, 0.0),
    }
    both |= {name: (float(told[f"ccm/{name}"][0]), value) for name, value in figures.items()}
    print(json.dumps(both))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
