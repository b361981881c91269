# SPDX-License-Identifier: Apache-2.0
"""Pods of GPUJobs that nobody has shown: is the watch late, or is there no such job?

Whose worker a pod is, it says itself. A true worker's attempt stands in its GPUJob before the pod
is made; so a list of all GPUJobs that was asked for after the pod was seen has it, or there is
none. The pod of an invented job is refused from then on: an error is tried again and again, and
thousands of such pods would keep kube-scheduler from all others.
"""

from collections.abc import Callable
from typing import Protocol

LIST_SECONDS = 30.0
"""Between two lists for the sake of such pods."""


class Listed(Protocol):
    """What is asked of the reflector of GPUJobs."""

    listed_at: float

    def list_anew(self, *, wait_seconds: float = 0.0) -> None:
        """List again within so many seconds."""


class UnknownJobs:
    """Tells what is not shown yet from what is not there.

    Args:
        jobs: the reflector of GPUJobs.
        seen_at: when the watch first showed a pod that waits, by its UID; None: it has not yet.
        clock: monotonic seconds, as of the two.
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
        """Whether a pod's GPUJob, which is not known, does not exist; if that is open, look."""
        seen_at = self._seen_at(uid)
        if seen_at is not None and self._jobs.listed_at > seen_at:
            return True
        listed_seconds_ago = self._clock() - self._jobs.listed_at
        self._jobs.list_anew(wait_seconds=max(LIST_SECONDS - listed_seconds_ago, 0.0))
        return False
