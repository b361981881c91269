# SPDX-License-Identifier: Apache-2.0
"""What every part counts of its watches, and the port where operator and agent show it.

The extender shows it beside its own metrics, on the port of its plan API. Operator and agent listen
nowhere unless an administrator asks for it: then on loopback alone, for `kubectl port-forward` or a
proxy beside them that asks who calls.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol

import prometheus_client
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)


class Watch(Protocol):
    """A watch of one kind, such as a reflector."""

    @property
    def unreadable(self) -> int:
        """How many times an object could not be read."""


class UnreadableObjects(Collector):
    """Objects that watches passed over, read from the watches when it is asked for."""

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """One number a watch, by the name of what it watches."""
        family = CounterMetricFamily(
            "gpupack_unreadable_objects",
            "How many times an object of the API server was passed over, by kind.",
            labels=["kind"],
        )
        for kind, watch in tuple(self._watches.items()):
            family.add_metric([kind], watch.unreadable)
        yield family


@contextlib.asynccontextmanager
async def shown(
    watches: Mapping[str, Watch], *collectors: Collector, port: int
) -> AsyncIterator[None]:
    """Answer GET /metrics on loopback meanwhile, in a thread.

    Args:
        watches: by the names of what they watch; more may come later.
        collectors: of what else there is to show.
        port: TCP port; 0: listen nowhere.

    Raises:
        OSError: the port is taken.
    """
    if not port:
        yield
        return
    registry = prometheus_client.CollectorRegistry()
    for collector in (UnreadableObjects(watches), *collectors):
        registry.register(collector)
    server, thread = prometheus_client.start_http_server(port, addr="127.0.0.1", registry=registry)
    log.info("metrics are on port %d of loopback", port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
