# SPDX-License-Identifier: Apache-2.0
"""Detection of silent nodes: neither their kubelet nor their agent renews its Lease.

A pod that should be gone and still exists hangs on its node. If only the kubelet is dead, the
containers continue, and so does the agent; if the node is dead, both are silent. Both must be
silent, because each can be down for a while on a healthy node.

Both Leases are read only when a pod is overdue, or Kubernetes has given its node up. A Lease is
silent when two reads, longer apart than its duration by the operator's own clock, found the same
resourceVersion, whatever happened between them: clocks of other machines are never compared. An API
server that is down keeps nodes from writing as it keeps the operator from reading. That does not
count as silence: the operator, which cannot renew its own Lease then, ends within that Lease's
duration, which is shorter than a node's, and its observations are lost with it.

The Node owns both Leases, and they are deleted with it. When a host registers again, each holder
creates its Lease again at its next renewal: a missing Lease is silent only after MISSING_SECONDS.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable

from gpupack_crds import names
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import LEASES

KUBELET_LEASES = "kube-node-lease"
"""Namespace of the kubelets' Leases, which have their nodes' names."""

FRESH_SECONDS = 2.0
"""How long a read of a Lease is reused: many jobs may wait for one node."""

MISSING_SECONDS = 40.0
"""How long a Lease is missing before its node is silent: the duration of kubelets' Leases."""

KEPT_SECONDS = 600.0
"""How long an unused observation is kept: nodes come and go."""


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseObservation:
    """Observation of one Lease.

    Attributes:
        version: the resourceVersion; empty: there is no Lease, so it is not renewed either.
        since: when this version was first seen.
        at: when the Lease was last read.
        duration: the Lease's duration in seconds.
    """

    version: str
    since: float
    at: float
    duration: float

    @property
    def silent(self) -> bool:
        """Whether the Lease was unchanged for longer than its duration."""
        return self.at - self.since > self.duration


class Fence:
    """Record of when each Lease last changed.

    Args:
        api: reads Leases.
        namespace: the namespace of the agents' Leases.
        clock: monotonic seconds.
    """

    def __init__(
        self, api: Api, *, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._observations: dict[tuple[str, str], LeaseObservation] = {}

    async def silent_nodes(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of the nodes that are known to be silent by now.

        Raises:
            KubeError: a Lease could not be read.
        """
        return frozenset([node for node in nodes if await self._is_silent(node)])

    async def _is_silent(self, node: str) -> bool:
        agent = await self._observe(self._namespace, names.heartbeat_lease(node))
        kubelet = await self._observe(KUBELET_LEASES, node)
        return agent.silent and kubelet.silent

    async def _observe(self, namespace: str, name: str) -> LeaseObservation:
        last = self._observations.get((namespace, name))
        if last and self._clock() - last.at < FRESH_SECONDS:
            return last
        version, duration = await self._read(namespace, name)
        now = self._clock()
        unchanged = last and last.version == version
        since = last.since if last and unchanged else now
        observation = LeaseObservation(version=version, since=since, at=now, duration=duration)
        self._forget(now)
        self._observations[namespace, name] = observation
        return observation

    def _forget(self, now: float) -> None:
        self._observations = {
            lease: observation
            for lease, observation in self._observations.items()
            if now - observation.at <= KEPT_SECONDS
        }

    async def _read(self, namespace: str, name: str) -> tuple[str, float]:
        try:
            lease = await self._api.get(LEASES, name, namespace=namespace)
        except errors.NotFound:
            return "", MISSING_SECONDS
        return lease.metadata.resource_version, float(lease.spec.lease_duration_seconds)
