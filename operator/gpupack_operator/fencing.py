# SPDX-License-Identifier: Apache-2.0
"""Which nodes have fallen silent: neither their kubelet nor their agent renews its Lease.

A pod that should be gone and still is there hangs on its node. If only the kubelet is dead, the
containers go on, and so does the agent; if the node is dead, both are silent. Their word is taken
together, because each can be away for a while on a node that is well.

Both are asked for only when a pod is overdue, or Kubernetes has given its node up. A Lease is
silent when two looks at it, longer apart than its duration by our own clock, found the same
resourceVersion, whatever lies between them: clocks of other machines are never compared. An API
server that is away keeps nodes from writing as it keeps us from reading. That is no silence of
theirs, and not counted as such: the operator, which cannot renew its own Lease then, ends within
that Lease's duration, which is shorter than a node's, and what was seen dies with it.

Both Leases are owned by the Node, and go with it. Where a host registers again, each is created
again at its holder's next turn: a Lease that is missing is silent only after MISSING_SECONDS.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable

from gpupack_crds import names
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.resources import LEASES

KUBELET_LEASES = "kube-node-lease"
"""Namespace of the kubelets' Leases, which are named after their nodes."""

FRESH_SECONDS = 2.0
"""How long a look at a Lease serves everyone: many jobs may wait for one node."""

MISSING_SECONDS = 40.0
"""How long a Lease is missing before that is silence: as long as kubelets' Leases are good for."""

KEPT_SECONDS = 600.0
"""How long a look is remembered that nobody asks about: nodes come and go."""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What was seen of one Lease.

    Attributes:
        version: the resourceVersion; empty where there is no Lease, which nobody renews either.
        since: when it was first seen like this.
        at: when it was last looked at.
        duration: seconds after which it is over.
    """

    version: str
    since: float
    at: float
    duration: float

    @property
    def silent(self) -> bool:
        """Whether it was unchanged for longer than its duration."""
        return self.at - self.since > self.duration


class Fence:
    """Remembers when which Lease last changed.

    Args:
        api: reads Leases.
        namespace: where the agents' Leases lie.
        clock: monotonic seconds.
    """

    def __init__(
        self, api: Api, *, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._looks: dict[tuple[str, str], Look] = {}

    async def silent(self, nodes: Iterable[str]) -> frozenset[str]:
        """Those of the nodes that are known to be silent by now.

        Raises:
            KubeError: a Lease could not be read.
        """
        return frozenset([node for node in nodes if await self._is_silent(node)])

    async def _is_silent(self, node: str) -> bool:
        agent = await self._look(self._namespace, names.heartbeat_lease(node))
        kubelet = await self._look(KUBELET_LEASES, node)
        return agent.silent and kubelet.silent

    async def _look(self, namespace: str, name: str) -> Look:
        last = self._looks.get((namespace, name))
        if last and self._clock() - last.at < FRESH_SECONDS:
            return last
        version, duration = await self._read(namespace, name)
        now = self._clock()
        unchanged = last and last.version == version
        since = last.since if last and unchanged else now
        look = Look(version=version, since=since, at=now, duration=duration)
        self._forget(now)
        self._looks[namespace, name] = look
        return look

    def _forget(self, now: float) -> None:
        self._looks = {
            lease: look for lease, look in self._looks.items() if now - look.at <= KEPT_SECONDS
        }

    async def _read(self, namespace: str, name: str) -> tuple[str, float]:
        try:
            lease = await self._api.get(LEASES, name, namespace=namespace)
        except errors.NotFound:
            return "", MISSING_SECONDS
        return lease.metadata.resource_version, float(lease.spec.lease_duration_seconds)
