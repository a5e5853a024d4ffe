"""One backbone with two LoRA adapters: `compress` writes a text into a few vectors, `generate` reads them.

The compressor reads the text and then the memory rows, inputs of its own that are trained; its last hidden states there
are the memory, and stand in the generator's input as they are (REA, Figure 3). That is the `plain` start. In the
`pooled` start each vector begins as the mean of the input embeddings of the slot's share of the text, rare tokens
before common ones, and the hidden state adds to it through a matrix that starts at zero: the generator reads something
from the first step on, which a short training needs (docs/latent.md has both measured). How rare a token is tells its
place in the vocabulary, since merged vocabularies are in the order of their merges, the commonest first: by Zipf's law
the logarithm of the place is the surprise. What the compressor thinks of a token is learnt and adds to that.

Shapes: B texts, T tokens, S slots, W width. Rows are padded at their ends. Attention is causal, so that padding reaches
nothing before it and needs no mask.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import Any, Literal, TypeAlias

import peft
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from forgetless.errors import ConfigError
from forgetless.models.local.chat import MEMORY

__all__ = ["COMPRESS", "GENERATE", "IGNORED", "Lora", "Network", "Sample", "Shape"]

Tensor: TypeAlias = Any
"""A torch tensor; torch has no part in type checking, since most installations do without it."""

COMPRESS, GENERATE = "compress", "generate"
"""The adapters."""

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts to compress, and a sequence that is read with their memories in it.

    Attributes:
        texts: the tokens of each.
        tokens: of the sequence; `MEMORY` marks stand for the texts, in their order.
        labels: of the last tokens, what is to be guessed there, or -100; no mark stands among these.
    """

    texts: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter; the defaults are REA's (notes A1).

    Attributes:
        rank: of the two factors.
        alpha: what their product is scaled by, over the rank.
        dropout: of what goes in, in training.
        targets: names of the layers that get one, or `all-linear`.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.1
    targets: str | tuple[str, ...] = "all-linear"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a memory is, and the adapters that make it and read it.

    Attributes:
        slots: vectors of a text.
        most: tokens of a text that go in.
        start: of a vector: `plain`, the paper's, or `pooled`.
        sharpness: of a pooled mean: 0 weighs all tokens alike, 1 lets the rarest stand out, as Zipf's law has it.
        compress: the adapter that writes.
        generate: the adapter that reads.
    """

    slots: int = 8
    most: int = 512
    start: Literal["plain", "pooled"] = "pooled"
    sharpness: float = 0.5
    compress: Lora = field(default_factory=Lora)
    generate: Lora = field(default_factory=Lora)

    def __post_init__(self) -> None:
        if self.start not in ("plain", "pooled"):
            raise ConfigError(f"start must be 'plain' or 'pooled', not {self.start!r}")
        if self.slots < 1 or self.most < self.slots:
            raise ConfigError(f"slots must be at least 1 and most at least that, not {self.slots!r} and {self.most!r}")

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Shape:
        """A shape from JSON."""
        adapters = {name: _lora(told[name]) for name in (COMPRESS, GENERATE)}
        return cls(**{**told, **adapters})

    def json(self) -> dict[str, Any]:
        """The shape as JSON has it."""
        return asdict(self)


def _lora(told: Mapping[str, Any]) -> Lora:
    targets = told["targets"]
    return Lora(**{**told, "targets": targets if isinstance(targets, str) else tuple(targets)})


class Network(torch.nn.Module):  # type: ignore[misc]  # torch has no part in type checking
    """A backbone with both adapters and what makes the memory.

    Attributes:
        shape: of the memory.
        width: of a vector.
        sharpness: of the mean; a training begins with a sharper one than it ends with.
        model: the peft model.
        rows: [S, W], inputs of the compressor behind a text.
        project: [W, W], what a hidden state adds to a pooled vector; empty in the plain start.
        weigh: [W], what a token's hidden state adds to its rarity; empty in the plain start.
    """

    def __init__(self, backbone: Any, shape: Shape) -> None:
        """Put new adapters on a model of transformers; its own weights stay as they are."""
        super().__init__()
        self.shape, self.sharpness = shape, shape.sharpness
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 reads what transformers 6 calls otherwise
            self.model = peft.get_peft_model(backbone, _config(shape.compress), adapter_name=COMPRESS)
        self.model.add_adapter(GENERATE, _config(shape.generate))
        for layer in self.model.modules():
            if hasattr(layer, "cast_input_dtype_enabled"):
                layer.cast_input_dtype_enabled = False  # autocast casts the small factors, not the large inputs
        table = backbone.get_input_embeddings().weight
        self.width = table.shape[1]
        rows = table[torch.randperm(len(table))[: shape.slots]].detach().float().clone()
        self.rows = torch.nn.Parameter(rows)
        pooled = shape.start == "pooled"
        self.project = torch.nn.Parameter(torch.zeros(self.width if pooled else 0, self.width))
        self.weigh = torch.nn.Parameter(torch.zeros(self.width if pooled else 0))
        self.trained()

    def trained(self) -> list[Any]:
        """All that learns, switched on: peft switches the adapter off that is not active, and it would not learn."""
        found = [self.rows, *([self.project, self.weigh] if self.shape.start == "pooled" else [])]
        found += [parameter for name, parameter in self.model.named_parameters() if ".lora_" in name]
        for parameter in found:
            parameter.requires_grad_(True)
        return found

    def use(self, adapter: str | None) -> None:
        """Have an adapter at work, or none; what learns goes on learning."""
        for layer in self._layers():
            layer.enable_adapters(adapter is not None)
            if adapter is not None:
                layer.set_adapter(adapter, inference_mode=not self.training)
        if self.training:
            self.trained()

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """The input embeddings of tokens, [T, W] in fp32, without gradient."""
        with torch.no_grad():
            return self.model.get_input_embeddings()(self._tensor(tokens)).float()

    def compress(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """The memory of texts: [B, S, W] in fp32.

        Args:
            texts: the tokens of each; those behind the first `most` are left out.
        """
        texts = [list(text[: self.shape.most]) for text in texts]
        inputs = [torch.cat([self.embed(text), self.rows]) for text in texts]
        self.use(COMPRESS)
        states = self._states(torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True))
        found = [self._memory(state, row, text) for state, row, text in zip(states, inputs, texts, strict=True)]
        return torch.stack(found)

    def _memory(self, states: Tensor, inputs: Tensor, text: Sequence[int]) -> Tensor:
        """The memory of one text, [S, W]: states and inputs are [T + S or more, W]."""
        end = len(text)
        if self.shape.start == "plain" or not text:
            return states[end : end + self.shape.slots].float()
        rarity = torch.log1p(self._tensor(text).float()) * self.sharpness
        known = torch.nn.functional.rms_norm(states[: end + self.shape.slots].float(), (self.width,))
        thought = known[:end] @ self.weigh / sqrt(self.width)
        weights = torch.softmax(_shares(end, self.shape.slots).to(rarity) + rarity + thought, -1)
        return weights @ inputs[:end] + known[end:] @ self.project / self.width

    def inputs(self, tokens: Sequence[int], memories: Sequence[Tensor]) -> Tensor:
        """The generator's input: embeddings of tokens, with a memory in the place of each mark; [T, W] in fp32."""
        found, begin, left = [], 0, iter(memories)
        for at, token in enumerate(tokens):
            if token == MEMORY:
                found += [self.embed(tokens[begin:at]), next(left)]
                begin = at + 1
        return torch.cat([*found, self.embed(tokens[begin:])])

    def losses(self, samples: Sequence[Sample], memories: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Nats of each token that is to be guessed, for each sample, with the generator at work."""
        self.use(GENERATE)
        inputs = [self.inputs(sample.tokens, found) for sample, found in zip(samples, memories, strict=True)]
        states = self._states(torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True))
        wanted = self._tensor([IGNORED]).expand(states.shape[:2]).clone()
        for at, (sample, row) in enumerate(zip(samples, inputs, strict=True)):
            wanted[at, len(row) - len(sample.labels) : len(row)] = self._tensor(sample.labels)
        wanted = wanted[:, 1:]
        asked = wanted != IGNORED
        with self._cast():
            logits = self.model.get_base_model().get_output_embeddings()(states[:, :-1][asked])
        nats = torch.nn.functional.cross_entropy(logits.float(), wanted[asked], reduction="none")
        return list(nats.split(asked.sum(-1).tolist()))

    def forward(self, samples: Sequence[Sample]) -> Tensor:
        """The mean of the samples' nats a token, with gradients into both adapters and all that makes the memory."""
        texts = list(dict.fromkeys(text for sample in samples for text in sample.texts))
        memories = dict(zip(texts, self.compress(texts), strict=True))
        found = [[memories[text] for text in sample.texts] for sample in samples]
        return torch.cat(self.losses(samples, found)).mean()

    def said(self, inputs: Tensor, temperature: float = 0.0, seed: int | None = None) -> Iterator[int]:
        """Tokens that the generator goes on with, without end.

        Args:
            inputs: [T, W].
            temperature: of the draws; 0 takes the likeliest token.
            seed: of the draws.
        """
        self.use(GENERATE)
        chance = torch.Generator(inputs.device)
        chance.manual_seed(seed) if seed is not None else chance.seed()
        cache: Any = None
        while True:
            with self._cast():
                row = inputs[None].to(self._dtype())
                out = self.model.get_base_model()(inputs_embeds=row, cache=cache, use_cache=True, logits_to_keep=1)
            cache, logits = out.cache, out.logits[0, -1].float()
            if temperature:
                number = int(torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=chance))
            else:
                number = int(logits.argmax())
            yield number
            inputs = self.embed([number])

    def _states(self, inputs: Tensor) -> Tensor:
        """The last hidden states, [B, T, W]."""
        with self._cast():
            body = self.model.get_base_model().base_model
            return body(inputs_embeds=inputs.to(self._dtype()), use_cache=False).last_hidden_state

    def _cast(self) -> Any:
        """The backbone's own type for all products, also of fp32 adapters."""
        dtype = self._dtype()
        return torch.autocast(self.rows.device.type, dtype, enabled=dtype != torch.float32)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.rows.device)

    def _dtype(self) -> Any:
        return self.model.get_input_embeddings().weight.dtype

    def _layers(self) -> list[Any]:
        return [layer for layer in self.model.modules() if isinstance(layer, BaseTunerLayer)]


def _shares(tokens: int, slots: int) -> Tensor:
    """[S, T]: 0 where a token is in a slot's share of a text, else minus infinity; shares overlap in short texts."""
    places = torch.arange(tokens)
    begins = torch.arange(slots) * tokens // slots
    ends = torch.maximum((torch.arange(slots) + 1) * tokens // slots, begins + 1)
    inside = (places >= begins[:, None]) & (places < ends[:, None])
    return torch.zeros(slots, tokens).masked_fill(~inside, float("-inf"))


def _config(lora: Lora) -> Any:
    return peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        task_type="CAUSAL_LM",
    )
