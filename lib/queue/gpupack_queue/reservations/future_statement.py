# SPDX-License-Identifier: Apache-2.0
"""Changes of the clusters in which reservations are, made together or not at all."""

from collections.abc import Callable

from gpupack_queue.job import Job, Places
from gpupack_queue.running.projected_cluster import ProjectedCluster


class FutureStatement:
    """The changes for one job; they stay unless they are discarded."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def place(self, future: ProjectedCluster, job: Job, places: Places) -> bool:
        """Place all workers, or none if one place is taken; return whether they are placed."""
        if not future.place(job, places):
            return False
        self._undo.append(lambda: future.remove(job.id))
        return True

    def remove(self, future: ProjectedCluster, job: Job) -> None:
        """Remove a job that is placed; no effect on other jobs."""
        places = future.places_of(job.id)
        if places is not None:
            future.remove(job.id)
            self._undo.append(lambda: future.adopt(job, places))

    def discard(self) -> None:
        """Undo all changes."""
        while self._undo:
            self._undo.pop()()
