# SPDX-License-Identifier: Apache-2.0
"""Limits of concurrent requests for nodes: by namespace, in the cluster, and in GPUs.

Statuses of GPUJobs record the open requests. A pass reserves before it writes, so that no two of
them use the same capacity. Of the jobs that may request nodes within the limits, the first in the
queue goes first.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Final

from gpupack_crds.gpujob_status import NodesRequest
from gpupack_crds.kinds import GpuJob
from gpupack_operator.cache import version
from gpupack_operator.decision import gpus, times
from gpupack_operator.decision.nodes import MayAskNodes, MayNotAskNodes, ReserveNodes
from gpupack_operator.plan_line import Key

RETRY_SECONDS: Final = 60.0
NEXT_SECONDS: Final = 15.0
"""Delay for a job that is not the first: the first one has been woken."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits that hold at any time.

    Attributes:
        requests, gpus: open in the cluster.
        namespace_requests, namespace_gpus: open in one namespace.
        between_seconds: interval between two new requests of one namespace.
    """

    requests: int = 10
    gpus: int = 256
    namespace_requests: int = 2
    namespace_gpus: int = 64
    between_seconds: float = 60


@dataclasses.dataclass(frozen=True, slots=True)
class _Want:
    key: Key
    uid: str
    asked: ReserveNodes
    at: dt.datetime

    @property
    def order(self) -> tuple[int, Key]:
        return (self.asked.position or 1 << 62, self.key)


class NodesBounds:
    """Allocator of requests within the limits.

    Args:
        bounds: all limits.
        wake: queues a GPUJob for a pass.
    """

    def __init__(self, bounds: Bounds, wake: Callable[[Key], None]) -> None:
        self._bounds = bounds
        self._wake = wake
        self._open: dict[str, tuple[str, int]] = {}
        """Namespace and GPUs by UID of the GPUJob, according to its status."""
        self._reserved: dict[str, tuple[str, int]] = {}
        self._versions: dict[str, int] = {}
        self._asked_at: dict[str, dt.datetime] = {}
        """Time of the last new request, by namespace."""
        self._wants: dict[Key, _Want] = {}

    def saw(self, job: GpuJob, *, gone: bool) -> None:
        """Record a changed GPUJob; ignore a version older than the known one."""
        uid = job.metadata.uid
        if gone:
            for known in (self._open, self._reserved, self._versions):
                known.pop(uid, None)
            self._wants.pop(Key(*job.key), None)
        elif job.status.nodes_request is not None and version(job) >= self._versions.get(uid, 0):
            self._versions[uid] = version(job)
            self._take(job, job.status.nodes_request)

    def reserve(
        self, job: GpuJob, asked: ReserveNodes, now: dt.datetime
    ) -> MayAskNodes | MayNotAskNodes:
        """Reserve one request of this job until it is settled, or return why none is possible."""
        want = _Want(Key(*job.key), job.metadata.uid, asked, now)
        if no := self._never(asked):
            return MayNotAskNodes(no, RETRY_SECONDS)
        self._wants[want.key] = want
        if no := self._refusal(want, now):
            return MayNotAskNodes(no, RETRY_SECONDS)
        first = min(self._eligible(now), key=lambda each: each.order, default=want)
        if first.key != want.key:
            self._wake(first.key)
            return MayNotAskNodes("", NEXT_SECONDS)
        self._reserved[want.uid] = (want.key.namespace, asked.gpus)
        return MayAskNodes(is_fresh=asked.is_fresh)

    def settle(self, job: GpuJob, now: dt.datetime) -> None:
        """End a pass: what it reserved is in the status now, or free again.

        This is not called after a write without an answer: its reservation stays until the next
        pass.
        """
        self._reserved.pop(job.metadata.uid, None)
        self.saw(job, gone=False)
        request = job.status.nodes_request
        if request is None or request.is_open or request.lacks_gpus_since is None:
            self._wants.pop(Key(*job.key), None)
        pause = dt.timedelta(seconds=self._bounds.between_seconds)
        self._asked_at = {of: at for of, at in self._asked_at.items() if now - at < pause}

    def _take(self, job: GpuJob, request: NodesRequest) -> None:
        uid, namespace = job.metadata.uid, job.metadata.namespace
        if not (request.is_open or request.objects):
            self._open.pop(uid, None)
            return
        self._open[uid] = (namespace, gpus.number(job.spec))
        if request.state == "Creating" and request.since is not None:
            at = times.read(request.since)
            self._asked_at[namespace] = max(at, self._asked_at.get(namespace, at))

    def _eligible(self, now: dt.datetime) -> list[_Want]:
        """Return the jobs that recently wanted to request nodes, and may do so."""
        over = now - dt.timedelta(seconds=2 * RETRY_SECONDS)
        self._wants = {key: each for key, each in self._wants.items() if each.at >= over}
        return [each for each in self._wants.values() if not self._refusal(each, now)]

    def _never(self, asked: ReserveNodes) -> str:
        most = min(self._bounds.gpus, self._bounds.namespace_gpus)
        if asked.gpus <= most:
            return ""
        return (
            f"no nodes are asked for: {asked.gpus} GPUs are more than the {most} for which nodes "
            "may be asked for at once"
        )

    def _refusal(self, want: _Want, now: dt.datetime) -> str:
        others = {uid: of for uid, of in (self._open | self._reserved).items() if uid != want.uid}
        namespace = want.key.namespace
        near = [number for of, number in others.values() if of == namespace]
        bounds, asked = self._bounds, want.asked
        if asked.quota_gpus is not None and sum(near) + asked.gpus > asked.quota_gpus:
            return "the quota does not allow it, beside jobs for which nodes were asked for already"
        if len(near) >= bounds.namespace_requests or sum(near) + asked.gpus > bounds.namespace_gpus:
            return "nodes were asked for as many other jobs of the namespace as may be at once"
        everywhere = sum(number for _, number in others.values())
        if len(others) >= bounds.requests or everywhere + asked.gpus > bounds.gpus:
            return "nodes were asked for as many jobs of the cluster as may be at once"
        last = self._asked_at.get(namespace)
        if last is not None and (now - last).total_seconds() < bounds.between_seconds:
            return "nodes were asked for another job of the namespace just now"
        return ""
