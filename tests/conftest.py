"""What every test runs under: no network but loopback, and hypothesis without deadlines."""

from __future__ import annotations

import gc
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("forgetless", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("forgetless")

gc.set_threshold(20_000, 50, 1_000)  # a worker holds what it has imported for all tests; looking through it takes long


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
