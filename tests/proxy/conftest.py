"""A proxy before a provider that answers by script, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Any, TypeAlias

import httpx2
import pytest

from forgetless.proxy.app import build
from forgetless.proxy.settings import Settings
from forgetless.stores.base import Store
from forgetless.stores.inmemory import InMemory
from live import Provider, serving

Start: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def _served() -> Iterator[tuple[Provider, str]]:
    provider = Provider()
    with serving(provider.app) as base:
        yield provider, base


@pytest.fixture
def provider(_served: tuple[Provider, str]) -> Provider:
    """The provider, which has seen nothing yet."""
    provider, _ = _served
    provider.seen, provider.answer = [], None
    return provider


@pytest.fixture
def upstream(_served: tuple[Provider, str]) -> str:
    """Its address."""
    return _served[1]


@pytest.fixture
def store() -> InMemory:
    """An empty store; the proxy that is started with it closes it."""
    return InMemory()


@pytest.fixture(scope="module")
def _stopping() -> Iterator[list[Thread]]:
    """What stops proxies, which takes a while for which the next test need not wait."""
    threads: list[Thread] = []
    yield threads
    for thread in threads:
        thread.join()


@pytest.fixture
def start(provider: Provider, upstream: str, _stopping: list[Thread]) -> Iterator[Start]:
    """Starts proxies, and stops them when the test ends."""
    with ExitStack() as stack:

        def make(kept: Store | None = None, **settings: Any) -> str:
            given = {"upstream": upstream, "budget": 400, "policy": "fifo", "store": "memory", **settings}
            return stack.enter_context(serving(build(Settings(**given), store=kept)))

        yield make
        thread = Thread(target=stack.pop_all().close)
        thread.start()
        _stopping.append(thread)


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    """A client without manners of its own."""
    with httpx2.Client(timeout=20) as client:
        yield client
