"""Prometheus metrics of the proxy; with several workers, those of all of them."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["FOLDER", "Metrics"]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: the folder through which workers share their figures. Set before this module is imported."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """All that is counted."""

    def __init__(self) -> None:
        """Start at zero."""
        self._registry = CollectorRegistry()
        r = self._registry
        self.requests = Counter(
            "forgetless_requests", "Requests, by what was done.", ["dialect", "outcome", "status"], registry=r
        )
        self.passed = Counter("forgetless_passed_through", "Requests of other paths, passed through.", registry=r)
        self.before = Counter("forgetless_tokens_before", "Tokens of requests as they came.", registry=r)
        self.after = Counter("forgetless_tokens_after", "Tokens of requests as they went.", registry=r)
        self.saved = Counter("forgetless_tokens_saved", "Tokens that were not sent.", registry=r)
        self.reused = Counter("forgetless_tokens_reused", "Tokens of exact prefixes of the request before.", registry=r)
        self.provider = Counter("forgetless_provider_tokens", "Tokens as providers count them.", ["kind"], registry=r)
        self.faults = Counter("forgetless_faults", "Things that went wrong and were survived.", ["kind"], registry=r)
        self.records = Counter("forgetless_records", "Records for the store, by their fate.", ["fate"], registry=r)
        self.recalled = Counter("forgetless_recalled", "Parts of histories that models had back.", registry=r)
        self.memories = Counter(
            "forgetless_memories", "Memories of models, by what became of them.", ["outcome"], registry=r
        )
        self.waiting = Gauge(
            "forgetless_records_waiting", "Records not yet kept.", registry=r, multiprocess_mode="livesum"
        )
        self.live = Gauge(
            "forgetless_live_sessions", "Sessions held in memory.", registry=r, multiprocess_mode="livesum"
        )
        self.added = Histogram(
            "forgetless_added_seconds", "Time that the proxy added to a request.", registry=r, buckets=_SECONDS
        )
        self.upstream = Histogram(
            "forgetless_upstream_seconds", "Time to the first byte from upstream.", registry=r, buckets=_SECONDS
        )

    def text(self) -> bytes:
        """In Prometheus' text format."""
        if not os.environ.get(FOLDER):
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
