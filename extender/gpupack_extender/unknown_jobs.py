# SPDX-License-Identifier: Apache-2.0
"""Pods of unknown GPUJobs: decision whether the watch is late or the job does not exist.

A pod itself claims to be a worker. A real worker's attempt is in its GPUJob before the pod is
created; so a list of all GPUJobs that was requested after the pod was seen contains it, or it does
not exist. The pod of an invented job is refused from then on: an error would be retried again and
again, and thousands of such pods would keep kube-scheduler from all others.
"""

from collections.abc import Callable
from typing import Protocol

LIST_SECONDS = 30.0
"""Interval between two lists for such pods."""


class Listed(Protocol):
    """Interface of the reflector of GPUJobs."""

    listed_at: float

    def relist(self, *, wait_seconds: float = 0.0) -> None:
        """List again within so many seconds."""


class UnknownJobs:
    """Distinction between GPUJobs that are not shown yet and those that do not exist.

    Args:
        jobs: the reflector of GPUJobs.
        seen_at: returns when the watch first showed a waiting pod, by its UID; None: not yet.
        clock: monotonic seconds, the same clock as of the other two.
    """

    def __init__(
        self,
        jobs: Listed,
        seen_at: Callable[[str], float | None],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._jobs, self._seen_at, self._clock = jobs, seen_at, clock

    def are_none(self, uid: str) -> bool:
        """Tell whether a pod's unknown GPUJob does not exist; if that is open, request a list."""
        seen_at = self._seen_at(uid)
        if seen_at is not None and self._jobs.listed_at > seen_at:
            return True
        listed_seconds_ago = self._clock() - self._jobs.listed_at
        self._jobs.relist(wait_seconds=max(LIST_SECONDS - listed_seconds_ago, 0.0))
        return False
