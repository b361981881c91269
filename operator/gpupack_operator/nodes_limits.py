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
from gpupack_operator.decision.nodes import (
    NodesRequestAllowed,
    NodesRequestDeferred,
    ReserveNodesRequest,
)
from gpupack_operator.waiting_jobs import Key

RETRY_SECONDS: Final = 60.0
NEXT_SECONDS: Final = 15.0
"""Delay for a job that is not the first: the first one has been woken."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodesLimits:
    """Limits that hold at any time.

    Attributes:
        requests, gpus: open in the cluster.
        namespace_requests, namespace_gpus: open in one namespace.
        interval_seconds: interval between two new requests of one namespace.
    """

    requests: int = 10
    gpus: int = 256
    namespace_requests: int = 2
    namespace_gpus: int = 64
    interval_seconds: float = 60


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    key: Key
    uid: str
    request: ReserveNodesRequest
    at: dt.datetime

    @property
    def order(self) -> tuple[int, Key]:
        return (self.request.position or 1 << 62, self.key)


class NodesRequestLimiter:
    """Allocator of requests within the limits.

    Args:
        limits: all limits.
        wake: queues a GPUJob for a pass.
    """

    def __init__(self, limits: NodesLimits, wake: Callable[[Key], None]) -> None:
        self._limits = limits
        self._wake = wake
        self._open: dict[str, tuple[str, int]] = {}
        """Namespace and GPUs by UID of the GPUJob, according to its status."""
        self._reserved: dict[str, tuple[str, int]] = {}
        self._versions: dict[str, int] = {}
        self._requested_at: dict[str, dt.datetime] = {}
        """Time of the last new request, by namespace."""
        self._candidates: dict[Key, _Candidate] = {}

    def record(self, job: GpuJob, *, gone: bool) -> None:
        """Record a changed GPUJob; ignore a version older than the known one."""
        uid = job.metadata.uid
        if gone:
            for known in (self._open, self._reserved, self._versions):
                known.pop(uid, None)
            self._candidates.pop(Key(*job.key), None)
        elif job.status.nodes_request is not None and version(job) >= self._versions.get(uid, 0):
            self._versions[uid] = version(job)
            self._take(job, job.status.nodes_request)

    def reserve(
        self, job: GpuJob, request: ReserveNodesRequest, now: dt.datetime
    ) -> NodesRequestAllowed | NodesRequestDeferred:
        """Reserve one request of this job until it is settled, or return why none is possible."""
        candidate = _Candidate(Key(*job.key), job.metadata.uid, request, now)
        if no := self._permanent_refusal(request):
            return NodesRequestDeferred(no, RETRY_SECONDS)
        self._candidates[candidate.key] = candidate
        if no := self._refusal(candidate, now):
            return NodesRequestDeferred(no, RETRY_SECONDS)
        first = min(self._eligible(now), key=lambda each: each.order, default=candidate)
        if first.key != candidate.key:
            self._wake(first.key)
            return NodesRequestDeferred("", NEXT_SECONDS)
        self._reserved[candidate.uid] = (candidate.key.namespace, request.gpus)
        return NodesRequestAllowed(is_fresh=request.is_fresh)

    def settle(self, job: GpuJob, now: dt.datetime) -> None:
        """End a pass: what it reserved is in the status now, or free again.

        This is not called after a write without an answer: its reservation stays until the next
        pass.
        """
        self._reserved.pop(job.metadata.uid, None)
        self.record(job, gone=False)
        request = job.status.nodes_request
        if request is None or request.is_open or request.lacks_gpus_since is None:
            self._candidates.pop(Key(*job.key), None)
        pause = dt.timedelta(seconds=self._limits.interval_seconds)
        self._requested_at = {of: at for of, at in self._requested_at.items() if now - at < pause}

    def _take(self, job: GpuJob, request: NodesRequest) -> None:
        uid, namespace = job.metadata.uid, job.metadata.namespace
        if not (request.is_open or request.objects):
            self._open.pop(uid, None)
            return
        self._open[uid] = (namespace, gpus.number(job.spec))
        if request.state == "Creating" and request.since is not None:
            at = times.read(request.since)
            self._requested_at[namespace] = max(at, self._requested_at.get(namespace, at))

    def _eligible(self, now: dt.datetime) -> list[_Candidate]:
        """Return the jobs that recently tried to request nodes and may do so now."""
        over = now - dt.timedelta(seconds=2 * RETRY_SECONDS)
        self._candidates = {key: each for key, each in self._candidates.items() if each.at >= over}
        return [each for each in self._candidates.values() if not self._refusal(each, now)]

    def _permanent_refusal(self, request: ReserveNodesRequest) -> str:
        limit = min(self._limits.gpus, self._limits.namespace_gpus)
        if request.gpus <= limit:
            return ""
        return (
            f"no nodes are requested: {request.gpus} GPUs exceed the limit of {limit} GPUs for "
            "concurrent requests for nodes"
        )

    def _refusal(self, candidate: _Candidate, now: dt.datetime) -> str:
        others = {
            uid: of for uid, of in (self._open | self._reserved).items() if uid != candidate.uid
        }
        namespace = candidate.key.namespace
        near = [number for of, number in others.values() if of == namespace]
        limits, request = self._limits, candidate.request
        if request.quota_gpus is not None and sum(near) + request.gpus > request.quota_gpus:
            return "the quota does not allow it in addition to jobs with open requests for nodes"
        if (
            len(near) >= limits.namespace_requests
            or sum(near) + request.gpus > limits.namespace_gpus
        ):
            return "the namespace has reached its limit of concurrent requests for nodes"
        everywhere = sum(number for _, number in others.values())
        if len(others) >= limits.requests or everywhere + request.gpus > limits.gpus:
            return "the cluster has reached its limit of concurrent requests for nodes"
        last = self._requested_at.get(namespace)
        if last is not None and (now - last).total_seconds() < limits.interval_seconds:
            return "nodes were requested for another job of the namespace a moment ago"
        return ""
