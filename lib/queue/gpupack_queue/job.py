# SPDX-License-Identifier: Apache-2.0
"""Pending and running jobs, as the queue sees them. Times are seconds of the caller's clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, NewType

from gpupack_devices.errors import InvalidRequest
from gpupack_devices.units import Holder, NodeName
from gpupack_placement.placement import Placement
from gpupack_placement.request import Gang, Role, Spread
from gpupack_queue.charge import Charge

JobId = NewType("JobId", str)
Tenant = NewType("Tenant", str)
"""The namespace whose quota a job counts against."""

NO_TENANT: Final = Tenant("")

User = NewType("User", str)
"""The user of a tenant that submitted a job."""

NO_USER: Final = User("")
ReservationId = NewType("ReservationId", str)
"""A time-window reservation: its namespace, a slash and its name."""

Places = tuple[Placement, ...]
"""The placement of each worker of a job."""


class Rank(NamedTuple):
    """The order of jobs within one tenant, the smallest rank first."""

    minus_priority: int
    submitted: float
    number: int
    id: JobId


@dataclass(frozen=True, slots=True)
class Job:
    """Workers that are admitted together or not at all; a standalone pod is a gang of one.

    `number` orders jobs that were submitted at the same time. The larger `priority` goes first.
    `duration`: the maximum time from its start to its end; infinity: it never ends; None: unknown.
    `estimate`: how long similar jobs took, which it may exceed; None: unknown. `preemptible` False:
    it is never preempted. `name`: its name in messages for its own tenant; empty: its ID.
    `preempts` False: no job is preempted for it. `avoid`: nodes on which it failed recently; it
    uses them only if it fits nowhere else. `movable`: it loses little when it is stopped and
    restarted elsewhere. `extra_workers`: the number of them that may run with its gang, each of
    them a job (elastic_gangs.py). `extra_of`: the role to which they belong; empty: the only one.
    `extends`: for an extra worker, the gang that it belongs to.
    `held_since`: the time since which it has its GPUs, at first as an earlier job; None: since its
    start. `grace_seconds`: the time that it may take to end once it is preempted.
    `user`: the user of the tenant that submitted it; empty: unknown.
    `model_fallback_seconds`: the models of its request are in order of preference, and each such
    time of waiting permits one more (pending/model_fallback.py); None: all are permitted at once,
    and the policy chooses. `reservation`: the time-window
    reservation whose GPUs it may use; None: none.
    """

    id: JobId
    gang: Gang
    submitted: float = 0.0
    tenant: Tenant = NO_TENANT
    priority: int = 0
    duration: float | None = None
    number: int = 0
    preemptible: bool = True
    name: str = ""
    preempts: bool = True
    estimate: float | None = None
    avoid: frozenset[NodeName] = frozenset()
    movable: bool = False
    extra_workers: int = 0
    extra_of: str = ""
    extends: JobId | None = None
    held_since: float | None = None
    grace_seconds: float = 0.0
    model_fallback_seconds: float | None = None
    user: User = NO_USER
    reservation: ReservationId | None = None

    def __post_init__(self) -> None:
        for what, seconds in (
            ("duration", self.duration),
            ("estimate", self.estimate),
            ("model_fallback_seconds", self.model_fallback_seconds),
        ):
            if seconds is not None and not seconds > 0:
                raise InvalidRequest(f"job {self.id}: {what} {seconds:g} s is not positive")
        if self.model_fallback_seconds is not None and len(self.gang.roles) > 1:
            raise InvalidRequest(
                f"job {self.id}: models in order of preference are for gangs of one role"
            )
        if not self.grace_seconds >= 0:
            raise InvalidRequest(
                f"job {self.id}: a grace period of {self.grace_seconds:g} s is negative"
            )
        if self.extra_workers < 0:
            raise InvalidRequest(
                f"job {self.id}: {self.extra_workers} extra workers are fewer than none"
            )
        if self.extra_workers and self.extends is None:
            self._check_extra_role()

    def _check_extra_role(self) -> None:
        if self.gang.spread != Spread() or self.extra_role.spread != Spread():
            raise InvalidRequest(
                f"job {self.id}: an elastic gang cannot say how its workers are spread"
            )

    @property
    def extra_role(self) -> Role:
        """Return the role to which its extra workers belong.

        Raises:
            InvalidRequest: the gang has several roles, and none of them is named.
        """
        role = self.gang.role(self.extra_of)
        if role is None and (self.extra_of or len(self.gang.roles) > 1):
            names = ", ".join(each.name for each in self.gang.roles)
            raise InvalidRequest(
                f"job {self.id}: extra workers belong to one of the roles {names}, not to "
                f"{self.extra_of or 'none'}"
            )
        return role or self.gang.roles[0]

    def latest_end(self, start: float) -> float:
        """Return the latest end if it starts then; infinity: it is unknown, or there is none."""
        return inf if self.duration is None else start + self.duration

    def expected_end(self, start: float) -> float:
        """Return the expected end if it starts then; infinity: it is unknown, or there is none."""
        estimate = inf if self.estimate is None else start + self.estimate
        return min(self.latest_end(start), estimate)

    @property
    def is_endless(self) -> bool:
        """Tell whether the job is taken to run forever."""
        return self.duration == inf and self.estimate is None

    @property
    def is_estimated(self) -> bool:
        """Tell whether it is expected to end before its deadline."""
        return self.expected_end(0.0) < self.latest_end(0.0)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """An admitted job.

    `charge`: what its GPUs count against quotas. `checkpointed`: the time at which it last saved
    its work, as far as is known; None: unknown.
    """

    job: Job
    placements: Places
    started: float
    charge: Charge
    checkpointed: float | None = None

    @property
    def latest_end(self) -> float:
        """Return the latest end; infinity: it is unknown, or there is none."""
        return self.job.latest_end(self.started)

    @property
    def protected_since(self) -> float:
        """Return the time from which its minimum run time counts."""
        held = self.job.held_since
        return self.started if held is None else min(held, self.started)

    @property
    def unsaved_since(self) -> float:
        """Return the time from which its work is lost at a preemption: a checkpoint, or its start.

        A checkpoint of an earlier attempt saves nothing of this one.
        """
        return self.started if self.checkpointed is None else max(self.started, self.checkpointed)

    def loss(self, now: float) -> float:
        """Return the milli-GPU times seconds that it would lose if it were preempted now.

        An extra worker loses nothing: its gang goes on.
        """
        if self.job.extends is not None:
            return 0.0
        return sum(self.charge.values()) * max(now - self.unsaved_since, 0.0)


def longest_grace(jobs: Iterable[RunningJob]) -> float:
    """Return the longest grace period of these jobs, in seconds; 0: there are none."""
    return max((one.job.grace_seconds for one in jobs), default=0.0)


def holder_name(job: JobId, worker: int) -> Holder:
    """Return the holder name of a worker in a Cluster whose owner has no names of its own."""
    return Holder(f"{job}/{worker}")
