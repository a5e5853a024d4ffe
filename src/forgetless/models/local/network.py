"""One backbone with two LoRA adapters: `compress` writes a text into a few vectors, `generate` reads them.

The compressor reads the text and then the memory rows, inputs of its own that are trained; its last hidden states there
are the memory, and stand in the generator's input as they are (REA, Figure 3). That is the `plain` start. In the
`pooled` start each vector begins as a mean of *input embeddings*, and the hidden state adds to it through a matrix that
starts at zero: the generator reads something from the first step on, which a short training needs (docs/latent.md has
both measured). Tokens weigh what they tell: the backbone's own surprise at each, times how rare it is at all. Rarity is
its place in the vocabulary, since merged vocabularies are in the order of their merges, the commonest first, and by
Zipf's law the place goes as one over the frequency. The text is cut into shares of equal weight, one a slot, so that a
telling token has a vector nearly to itself and a stretch of filler shares one. How much surprise and rarity count, and
what the compressor thinks of a token, is learnt.

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

__all__ = ["COMPRESS", "GENERATE", "IGNORED", "Lora", "Network", "Sample", "Shape", "shares"]

Tensor: TypeAlias = Any
"""A torch tensor; torch has no part in type checking, since most installations do without it."""

COMPRESS, GENERATE = "compress", "generate"
"""The adapters."""

IGNORED = -100

SURE = 0.1
"""Nats that are added to a token's surprise, so that one that is certain still weighs something."""

PART = 128
"""Tokens whose surprise is found at once: each takes a number for every word of the vocabulary."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts to compress, and a sequence that is read with their memories in it.

    Attributes:
        texts: the tokens of each.
        tokens: of the sequence; `MEMORY` marks stand for the texts, in their order.
        labels: of the last tokens, what is to be guessed there, or -100; no mark stands among these.
        clear: the sequence with the texts themselves in it, from which the backbone alone guesses: its guesses are
            learnt as much as the labels are. Empty where the labels are all there is to learn.
    """

    texts: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    labels: tuple[int, ...]
    clear: tuple[int, ...] = ()


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
        compress: the adapter that writes.
        generate: the adapter that reads.
    """

    slots: int = 8
    most: int = 512
    start: Literal["plain", "pooled"] = "pooled"
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
        model: the peft model.
        rows: [S, W], inputs of the compressor behind a text.
        project: [W, W], what a hidden state adds to a pooled vector; empty in the plain start.
        count: [2], how much rarity and surprise count in a token's weight; empty in the plain start.
        weigh: [W], what a token's hidden state adds to these; empty in the plain start.
    """

    def __init__(self, backbone: Any, shape: Shape) -> None:
        """Put new adapters on a model of transformers; its own weights stay as they are."""
        super().__init__()
        self.shape = shape
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
        self.project = torch.nn.Parameter(torch.zeros(self.width if pooled else 0, self.width), pooled)
        self.count = torch.nn.Parameter(torch.ones(2 if pooled else 0), pooled)
        self.weigh = torch.nn.Parameter(torch.zeros(self.width if pooled else 0), pooled)
        self._check()
        self.train()

    def _check(self) -> None:
        """That what comes out of the output layer is what the backbone guesses from: some scale or cap it."""
        self.use(None)
        with torch.no_grad():
            inputs = self.rows[None, :2]
            with self._cast():
                whole = self.model.get_base_model()(inputs_embeds=inputs.to(self._dtype()), use_cache=False).logits
            ours = self._head(self._states(inputs))
        if not torch.allclose(whole.float(), ours.float(), rtol=0.02, atol=0.02 * float(whole.float().abs().max())):
            kind = getattr(self.model.config, "model_type", "unknown")
            raise ConfigError(f"a backbone of type {kind!r} scales or caps its logits: no latent memory yet")

    def train(self, mode: bool = True) -> Network:
        """Switch the adapters' dropout on or off; the backbone has none, since it also teaches."""
        super().train(mode)
        self.model.eval()
        for layer in self._layers():
            layer.lora_dropout.train(mode)
        return self

    def trained(self) -> list[Any]:
        """All that learns, switched on: peft switches the adapter off that is not active, and it would not learn."""
        found = [self.rows, *([self.project, self.count, self.weigh] if self.shape.start == "pooled" else [])]
        found += [parameter for name, parameter in self.model.named_parameters() if ".lora_" in name]
        for parameter in found:
            parameter.requires_grad_(True)
        return found

    def ends(self, tokenizer: Any) -> set[int]:
        """Tokens that end a reply: the tokenizer's, and those of the model's own settings."""
        told = self.model.generation_config.eos_token_id
        found = {tokenizer.eos_token_id, *(told if isinstance(told, list) else [told])} - {None}
        if not found:
            raise ConfigError("the backbone has no token that ends a reply, so its replies have no end")
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
        embedded = [self.embed(text) for text in texts]
        inputs = [torch.cat([found, self.rows]) for found in embedded]
        pooled = self.shape.start == "pooled" and any(texts)
        telling = self._telling(texts, embedded) if pooled else [None] * len(texts)
        self.use(COMPRESS)
        states = self._states(torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True))
        return torch.stack([self._memory(*found) for found in zip(states, embedded, telling, strict=True)])

    def _memory(self, states: Tensor, embedded: Tensor, telling: Tensor | None) -> Tensor:
        """The memory of one text, [S, W]: states are [T + S or more, W], embeddings [T, W]."""
        end, slots = len(embedded), self.shape.slots
        if telling is None or not end:
            return states[end : end + slots].float()
        known = torch.nn.functional.rms_norm(states[: end + slots].float(), (self.width,))
        weights = torch.softmax(telling @ self.count + known[:end] @ self.weigh / sqrt(self.width), -1)
        return shares(weights, slots) @ embedded + known[end:] @ self.project / self.width

    def _telling(self, texts: Sequence[Sequence[int]], embedded: Sequence[Tensor]) -> list[Tensor]:
        """How rare each token is and how surprising after those before it, [T, 2] of logarithms for each text.

        Nothing stands before the first token: it is as surprising as the others are on average.
        """
        self.use(None)
        rows = []
        with torch.no_grad():
            states = self._states(torch.nn.utils.rnn.pad_sequence(list(embedded), batch_first=True))
            for text, state in zip(texts, states, strict=True):
                wanted = self._tensor(text[1:])
                parts = zip(state[: len(wanted)].split(PART), wanted.split(PART), strict=True)
                nats = torch.cat([_nats(self._head(known), said) for known, said in parts])
                nats = torch.cat([nats.mean(0, keepdim=True).nan_to_num(), nats])[: len(text)]
                rows.append(torch.stack([torch.log1p(self._tensor(text).float()), torch.log(nats + SURE)], -1))
        return rows

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
        logits = self._guesses(samples, memories)
        return [_nats(found, self._asked(sample)) for found, sample in zip(logits, samples, strict=True)]

    def forward(self, samples: Sequence[Sample]) -> Tensor:
        """The mean of the samples' nats a token, with gradients into both adapters and all that makes the memory.

        Where a sample is there in clear too, it is the mean of the label's and of those to the backbone's own guess.
        """
        texts = list(dict.fromkeys(text for sample in samples for text in sample.texts))
        memories = dict(zip(texts, self.compress(texts), strict=True))
        found = self._guesses(samples, [[memories[text] for text in sample.texts] for sample in samples])
        losses = []
        for sample, logits in zip(samples, found, strict=True):
            nats = _nats(logits, self._asked(sample))
            if sample.clear:
                taught = -(self._taught(sample) * torch.log_softmax(logits.float(), -1)).sum(-1)
                nats = (nats + taught) / 2
            losses.append(nats)
        return torch.cat(losses).mean()

    def _guesses(self, samples: Sequence[Sample], memories: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Logits of each token that is to be guessed, [N, vocabulary] for each sample, with the generator at work."""
        self.use(GENERATE)
        inputs = [self.inputs(sample.tokens, found) for sample, found in zip(samples, memories, strict=True)]
        return self._logits(inputs, [sample.labels for sample in samples])

    def _taught(self, sample: Sample) -> Tensor:
        """What the backbone alone guesses from a sample in clear, [N, vocabulary]: probabilities, without gradient."""
        self.use(None)
        with torch.no_grad():
            (logits,) = self._logits([self.embed(sample.clear)], [sample.labels])
            return torch.softmax(logits.float(), -1)

    def _logits(self, inputs: Sequence[Tensor], labels: Sequence[Sequence[int]]) -> list[Tensor]:
        """Logits where there are labels at the ends of inputs [T, W]."""
        states = self._states(torch.nn.utils.rnn.pad_sequence(list(inputs), batch_first=True))
        asked = torch.zeros(states.shape[:2], dtype=torch.bool, device=states.device)
        for at, (row, wanted) in enumerate(zip(inputs, labels, strict=True)):
            end = len(row) - 1  # a token is guessed at the place before it
            asked[at, end - len(wanted) : end] = self._tensor(wanted) != IGNORED
        return list(self._head(states[asked]).split(asked.sum(-1).tolist()))

    def _head(self, states: Tensor) -> Tensor:
        """Logits of what comes next, [N, vocabulary]."""
        with self._cast():
            return self.model.get_base_model().get_output_embeddings()(states)

    def _asked(self, sample: Sample) -> Tensor:
        """The labels that are to be guessed."""
        return self._tensor([label for label in sample.labels if label != IGNORED])

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


def _nats(logits: Tensor, wanted: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")


def shares(weights: Tensor, slots: int) -> Tensor:
    """[S, T]: the text cut into shares of equal weight, one a slot; each row sums to one.

    Args:
        weights: [T], of the tokens; they sum to one.
        slots: S.
    """
    ends = weights.cumsum(0) * slots
    begins = ends - weights * slots
    slot = torch.arange(slots, device=weights.device)[:, None]
    return (torch.minimum(ends, slot + 1) - torch.maximum(begins, slot)).clamp_min(0)


def _config(lora: Lora) -> Any:
    return peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        task_type="CAUSAL_LM",
    )
