# SPDX-License-Identifier: Apache-2.0
"""Metrics of the server for Prometheus."""

from collections.abc import Callable
from typing import Final

import prometheus_client as prometheus

from gpupack_workloads.inference_server.engine import Load

_FIRST: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_BETWEEN: Final = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1)


OUTCOMES: Final = (
    "length",
    "stop",
    "cancelled",
    "failed",
    "rejected",
    "unavailable",
    "invalid",
)
TOKENS: Final = ("prompt", "output")
"""Shown from the start, so that the first of them is an increase."""


class Metrics:
    """Counters and gauges of one server.

    Args:
        load: called at each scrape.
    """

    def __init__(self, load: Callable[[], Load]) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.requests = prometheus.Counter(
            "gpupack_inference_requests",
            "Requests by how they ended: length or stop (answered), cancelled (the caller left),"
            " failed, rejected (too many waited), unavailable (draining), invalid.",
            ["outcome"],
            registry=self.registry,
        )
        self.tokens = prometheus.Counter(
            "gpupack_inference_tokens",
            "Tokens of prompts that were taken, and of answers.",
            ["kind"],
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self.requests.labels(outcome)
        for kind in TOKENS:
            self.tokens.labels(kind)
        self.first_token = prometheus.Histogram(
            "gpupack_inference_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_FIRST,
            registry=self.registry,
        )
        self.between_tokens = prometheus.Histogram(
            "gpupack_inference_between_tokens_seconds",
            "From one token of an answer to the next.",
            buckets=_BETWEEN,
            registry=self.registry,
        )
        for name, text in (
            ("running", "Requests that compute."),
            ("waiting", "Requests that wait for pages or for a place in the batch."),
            ("pages", "Pages of the cache."),
            ("pages_free", "Pages that no request holds."),
            ("steps", "Steps computed since the start."),
        ):
            gauge = prometheus.Gauge(f"gpupack_inference_{name}", text, registry=self.registry)
            gauge.set_function(lambda name=name: float(getattr(load(), name)))  # type: ignore[misc]

    def written(self) -> bytes:
        """Return all as text."""
        return prometheus.generate_latest(self.registry)
