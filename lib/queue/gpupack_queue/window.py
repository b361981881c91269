# SPDX-License-Identifier: Apache-2.0
"""Windows: the intervals of time-window reservations, as the queue holds GPUs for them."""

from dataclasses import dataclass
from typing import Final

from gpupack_devices.errors import InvalidRequest
from gpupack_placement.request import Gang, Request
from gpupack_queue.job import Job, JobId, ReservationId, Tenant

HOLDER_PRIORITY: Final = 2**31
"""The priority of what holds GPUs for a window: above that of any job of its tenant."""

_HOLDER: Final = "window/"


@dataclass(frozen=True, slots=True)
class Window:
    """One interval of a reservation: `units` times the request of whole GPUs, each on one node.

    `start` to `end`: seconds of the queue's clock, the end excluded. `declared`: the time since
    which the reservation stands. Jobs that start later do so on notice: they can be preempted for
    the window if they are preemptible. `users`: the names of jobs that may use it, * at the end of
    one for any that begins so; empty: all of its tenant that name it.
    """

    reservation: ReservationId
    tenant: Tenant
    units: int
    request: Request
    start: float
    end: float
    declared: float
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.units < 1 or not self.request.gpus:
            raise InvalidRequest(f"reservation {self.reservation} has no whole GPU; reserve one")
        if not self.start < self.end:
            raise InvalidRequest(
                f"a window of reservation {self.reservation} ends at {self.end:g} s, "
                f"which is not after its start at {self.start:g} s"
            )

    @property
    def unit_milli(self) -> int:
        """Return the milli-GPU of one unit."""
        return self.request.milli

    @property
    def milli(self) -> int:
        """Return the milli-GPU of all units."""
        return self.units * self.unit_milli

    def is_active(self, at: float) -> bool:
        """Tell whether the time is within the window."""
        return self.start <= at < self.end

    def admits(self, job: Job) -> bool:
        """Tell whether the job may use the window's GPUs."""
        if job.reservation != self.reservation or job.tenant != self.tenant:
            return False
        name = job.name.rpartition(" ")[2]
        return not self.users or any(
            name.startswith(user.removesuffix("*")) if user.endswith("*") else name == user
            for user in self.users
        )

    def holder(self, request: Request, units: int) -> Job:
        """Return what holds so many units of the request for the window, as a job.

        The part of a unit that a smaller job leaves is held by another holder.
        """
        part = "" if request == self.request else "+"
        return Job(
            JobId(f"{_HOLDER}{self.reservation}{part}"),
            Gang.of(units, request),
            tenant=self.tenant,
            priority=HOLDER_PRIORITY,
            reservation=self.reservation,
        )


def holder_id(reservation: ReservationId) -> JobId:
    """Return the ID under which preemptions for a reservation's window are recorded."""
    return JobId(f"{_HOLDER}{reservation}")


def reservation_of(holder: JobId) -> ReservationId | None:
    """Return the reservation of such an ID; None: it is that of a job."""
    if not holder.startswith(_HOLDER):
        return None
    return ReservationId(holder.removeprefix(_HOLDER))


@dataclass(frozen=True, slots=True)
class WindowPreemption:
    """The victims of a window that have not all ended; times in seconds.

    `grace_seconds`: the longest grace period of a victim, within which it counts as leaving.
    """

    victims: tuple[JobId, ...]
    since: float
    grace_seconds: float
