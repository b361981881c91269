# SPDX-License-Identifier: Apache-2.0
"""The working copy of the cluster for one cycle, with reserved places and all decisions so far.

Most cycles decide nothing or one thing, so the overlay is made when a plan needs it.
"""

from collections.abc import Iterable

from gpupack_placement.cluster import Cluster
from gpupack_queue.job import Job, Places
from gpupack_queue.running.projected_cluster import adopt_job, release_job
from gpupack_queue.state.reservation import Reservation


class Session:
    """The working copy of one cycle; the given cluster stays as it is."""

    def __init__(self, cluster: Cluster, reserved: Iterable[Reservation]) -> None:
        self._snapshot, self._overlay = cluster, None  # type: Cluster, Cluster | None
        self._held = [(reservation.job, reservation.placements) for reservation in reserved]

    @property
    def snapshot(self) -> Cluster:
        """Return the cluster as it was given; read-only."""
        return self._snapshot

    @property
    def cluster(self) -> Cluster:
        """Return the cluster for plans; read-only."""
        if not self._held and self._overlay is None:
            return self._snapshot
        return self._own_overlay()

    def hold(self, job: Job, places: Places) -> None:
        """Hold these places from now on, even where another job still holds them."""
        self._held.append((job, places))

    def release(self, job: Job, places: Places) -> None:
        """Undo `hold`."""
        release_job(self._own_overlay(), job, places)

    def _own_overlay(self) -> Cluster:
        if self._overlay is None:
            self._snapshot.emptied()  # made once for the snapshot and all its overlays
            self._overlay = self._snapshot.overlay()
        for job, places in self._held:
            adopt_job(self._overlay, job, places)
        self._held.clear()
        return self._overlay
