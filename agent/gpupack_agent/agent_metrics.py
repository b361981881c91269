# SPDX-License-Identifier: Apache-2.0
"""Metrics of the agent itself: container starts, exceeded shares, the age of its view."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.mps.guard import ACTIONS
from gpupack_agent.prestart import OUTCOMES

NO_OVERRUNS: Final[Mapping[str, int]] = {}


class StatusAge(Protocol):
    """The age of the GPUNode's status, as its writer knows it."""

    def age_seconds(self) -> float:
        """Return the seconds since GPUNode was last known to equal the agent's view."""


class AgentMetrics(Collector):
    """The metrics of one node's agent.

    Args:
        known_devices: the GPUs, and the time since when no scan has succeeded.
        gpunode: the writer of the GPUNode.
        starts: number of starts of containers with GPUs, by outcome.
        overruns: number of exceeded shares, by the action taken; None: nothing limits shares here.
    """

    def __init__(
        self,
        known_devices: KnownDevices,
        gpunode: StatusAge,
        starts: Mapping[str, int],
        overruns: Mapping[str, int] | None = None,
    ) -> None:
        self._known_devices, self._gpunode = known_devices, gpunode
        self._starts, self._overruns = starts, overruns

    def collect(self) -> Iterator[Metric]:
        """Return all families; each outcome is present from the start."""
        starts = CounterMetricFamily(
            "gpupack_agent_container_starts",
            "Attempts to start containers with GPUs, by outcome. held: refused, because another "
            "pod still holds the device.",
            labels=["outcome"],
        )
        for outcome in OUTCOMES:
            starts.add_metric([outcome], self._starts.get(outcome, 0))
        yield starts
        overruns = CounterMetricFamily(
            "gpupack_agent_share_overruns",
            "Exceeded limited shares, by action: reported, or processes ended.",
            labels=["action"],
        )
        for action in ACTIONS if self._overruns is not None else ():
            overruns.add_metric([action], (self._overruns or NO_OVERRUNS).get(action, 0))
        yield overruns
        yield GaugeMetricFamily(
            "gpupack_agent_gpus_unseen_seconds",
            "Seconds since the last successful scan of the GPUs by the driver.",
            value=self._known_devices.seconds_without_scan(),
        )
        yield GaugeMetricFamily(
            "gpupack_agent_gpunode_age_seconds",
            "Seconds since the node's GPUNode was last known to be up to date.",
            value=self._gpunode.age_seconds(),
        )
