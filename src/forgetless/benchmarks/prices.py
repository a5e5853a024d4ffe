"""What requests cost, with a provider's prompt cache and without it: prices and a simple simulation.

The simulation of one run's requests, in order: the start that equals the start of the previous request is read from
the cache when it has the least length that the provider caches, in whole steps where it counts in steps; the rest is
written to it (clients mark the end of what they send, or of the part that comes again), or is plain input when what is
marked is too short. The
cache never expires, and nothing is found in it but the previous request. That is kind to policies that rewrite in the
middle: Anthropic finds a prefix only where an earlier request set a mark, at most 20 blocks back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PRICES", "Price", "Request", "cost"]

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs.

    Attributes:
        model: its name.
        input: dollars for a million tokens sent.
        output: dollars for a million tokens of reply.
        read: times `input` for tokens read from the cache.
        write: times `input` for tokens written to it.
        minimum: least tokens of a prefix that is cached.
        step: a cached prefix is a multiple of this many tokens.
    """

    model: str
    input: float
    output: float
    read: float
    write: float
    minimum: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a run.

    Attributes:
        tokens: of all that is sent.
        prefix: those at the start that equal the start of the previous request.
        output: tokens of the reply.
        unmarked: tokens at the end that the client does not ask to cache, since they will not come again.
    """

    tokens: int
    prefix: int
    output: int
    unmarked: int = 0


# Prices: the price map that litellm 1.110.2 ships; minimum prefixes and steps: the providers' documentation, late 2026.
# Anthropic's write is the one for five minutes. We know of no minimum for GLM and Kimi; 256 is assumed.
PRICES: tuple[Price, ...] = (
    Price("claude-sonnet-4.6", 3.0, 15.0, read=0.1, write=1.25, minimum=1_024),
    Price("claude-opus-4.6", 5.0, 25.0, read=0.1, write=1.25, minimum=4_096),
    Price("gpt-5.4", 2.5, 15.0, read=0.1, write=1.0, minimum=1_024, step=128),
    Price("gpt-4.1", 2.0, 8.0, read=0.25, write=1.0, minimum=1_024, step=128),
    Price("gpt-4.1-mini", 0.4, 1.6, read=0.25, write=1.0, minimum=1_024, step=128),
    Price("kimi-k3", 3.0, 15.0, read=0.1, write=1.0, minimum=256),
    Price("glm-5", 1.0, 3.2, read=0.2, write=1.0, minimum=256),
)


def cost(requests: Iterable[Request], price: Price, *, caching: bool) -> float:
    """Dollars for the requests of one run, in order, under the simulation above."""
    paid = 0.0
    for request in requests:
        read = _read(request, price) if caching else 0
        marked = request.tokens - request.unmarked
        written = max(0, marked - read) if caching and marked >= price.minimum else 0
        plain = request.tokens - read - written
        paid += price.input * (price.read * read + price.write * written + plain)
        paid += price.output * request.output
    return paid / MILLION


def _read(request: Request, price: Price) -> int:
    return request.prefix // price.step * price.step if request.prefix >= price.minimum else 0
