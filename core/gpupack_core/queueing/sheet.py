# SPDX-License-Identifier: Apache-2.0
"""The working copy of the cluster for one cycle, with reserved places and all decisions so far.

Most cycles decide nothing or one thing, so the overlay is made when a plan needs it.
"""

from collections.abc import Iterable

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.future import adopt, give_back
from gpupack_core.queueing.job import Job, Places
from gpupack_core.queueing.room import Reservation


class Sheet:
    """The working copy of one cycle; the given cluster stays as it is."""

    def __init__(self, cluster: Cluster, reserved: Iterable[Reservation]) -> None:
        self._given, self._overlay = cluster, None  # type: Cluster, Cluster | None
        self._booked = [(reservation.job, reservation.placements) for reservation in reserved]

    @property
    def cluster(self) -> Cluster:
        """Return the cluster for plans; read-only."""
        if not self._booked and self._overlay is None:
            return self._given
        return self._own()

    def book(self, job: Job, places: Places) -> None:
        """Hold these places from now on, even where another job still holds them."""
        self._booked.append((job, places))

    def unbook(self, job: Job, places: Places) -> None:
        """Undo `book`."""
        give_back(self._own(), job, places)

    def _own(self) -> Cluster:
        if self._overlay is None:
            self._overlay = self._given.overlay()
        for job, places in self._booked:
            adopt(self._overlay, job, places)
        self._booked.clear()
        return self._overlay
