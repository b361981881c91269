# SPDX-License-Identifier: Apache-2.0
"""What a cycle plans on: the cluster, with all that is reserved and all that was decided so far.

Most cycles decide nothing or one thing, so the overlay is made when the next plan needs it.
"""

from collections.abc import Iterable

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.future import adopt, give_back
from gpupack_core.queueing.job import Job, Places
from gpupack_core.queueing.room import Reservation


class Sheet:
    """Belongs to one cycle; the cluster is never changed."""

    def __init__(self, cluster: Cluster, reserved: Iterable[Reservation]) -> None:
        self._given, self._overlay = cluster, None  # type: Cluster, Cluster | None
        self._booked = [(reservation.job, reservation.placements) for reservation in reserved]

    @property
    def cluster(self) -> Cluster:
        """To plan on; not to be changed."""
        if not self._booked and self._overlay is None:
            return self._given
        return self._own()

    def book(self, job: Job, places: Places) -> None:
        """These are taken from now on, even if somebody is there still."""
        self._booked.append((job, places))

    def unbook(self, job: Job, places: Places) -> None:
        """The reverse of `book`."""
        give_back(self._own(), job, places)

    def _own(self) -> Cluster:
        if self._overlay is None:
            self._overlay = self._given.overlay()
        for job, places in self._booked:
            adopt(self._overlay, job, places)
        self._booked.clear()
        return self._overlay
