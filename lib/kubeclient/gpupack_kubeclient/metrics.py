# SPDX-License-Identifier: Apache-2.0
"""Counters of watches and of requests to the API server, for every component.

`gpupack_httpserver` exposes them over HTTPS to authorized users.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_kubeclient.client import Api

ANSWERS: Final = ("2xx", "3xx", "4xx", "5xx", "none")
"""Classes that are exposed from the start, so that the first error is an increase."""


class Watch(Protocol):
    """A watch of one kind, such as a reflector."""

    @property
    def unreadable(self) -> int:
        """Number of times an object could not be read."""


class UnreadableObjects(Collector):
    """A collector of objects that watches skipped; reads the watches when it is scraped."""

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """Yield one number for each watch, by the kind that it watches."""
        family = CounterMetricFamily(
            "gpupack_unreadable_objects",
            "How many times an object of the API server was skipped, by kind.",
            labels=["kind"],
        )
        for kind, watch in tuple(self._watches.items()):
            family.add_metric([kind], watch.unreadable)
        yield family


class KubeRequests(Collector):
    """A collector of the requests of one connection, by the class of the answer."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def collect(self) -> Iterator[Metric]:
        """Yield one number for each class of status; `none`: no answer."""
        family = CounterMetricFamily(
            "gpupack_kube_requests",
            "Requests to the Kubernetes API server, by class of the answer. none: no answer.",
            labels=["answer"],
        )
        for answer in ANSWERS:
            family.add_metric([answer], self._api.answers[answer])
        yield family
