# SPDX-License-Identifier: Apache-2.0
"""What waits and what runs, as the queue knows it. Times are seconds of the caller's clock."""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, NewType

from gpupack_core.errors import InvalidRequest
from gpupack_core.placement import Placement
from gpupack_core.queueing.charge import Charge
from gpupack_core.request import Gang, Spread
from gpupack_core.units import Holder, NodeName

JobId = NewType("JobId", str)
Tenant = NewType("Tenant", str)
"""Whose quota a job counts against: a namespace."""

NOBODY: Final = Tenant("")

Places = tuple[Placement, ...]
"""Of each worker of a job."""


class Rank(NamedTuple):
    """The order within one tenant; it sorts as it stands, smallest first."""

    minus_priority: int
    submitted: float
    number: int
    id: JobId


@dataclass(frozen=True, slots=True)
class Job:
    """Workers that are admitted together or not at all; a plain pod is a gang of one.

    `number` orders those that were submitted at one instant; the larger `priority` goes first.
    `duration`: from its start to its end at the latest; infinity: it never ends; None: nobody
    knows. `estimate`: how long jobs like it took, which it may exceed; None: that is not known.
    `preemptible` False: it is never stopped for another. `name`: as texts for its own tenant call
    it; empty: by its id. `preempts` False: nobody is stopped for it. `avoid`: nodes on which it
    broke of late; it goes there only if it fits nowhere else. `movable`: it loses little when it is
    stopped and started again elsewhere. `extra`: so many workers more may run beside its gang, each
    a job of its own (elastic.py). `extends`: of such a job the gang beside which it runs.
    `held_since`: it has had its GPUs since then, by another job before; None: since its start.
    """

    id: JobId
    gang: Gang
    submitted: float = 0.0
    tenant: Tenant = NOBODY
    priority: int = 0
    duration: float | None = None
    number: int = 0
    preemptible: bool = True
    name: str = ""
    preempts: bool = True
    estimate: float | None = None
    avoid: frozenset[NodeName] = frozenset()
    movable: bool = False
    extra: int = 0
    extends: JobId | None = None
    held_since: float | None = None

    def __post_init__(self) -> None:
        for what, seconds in (("duration", self.duration), ("estimate", self.estimate)):
            if seconds is not None and not seconds > 0:
                raise InvalidRequest(f"job {self.id}: {what} {seconds:g} s is not positive")
        if self.extra < 0:
            raise InvalidRequest(f"job {self.id}: {self.extra} extra workers are fewer than none")
        if self.extra and self.extends is None and self.gang.spread != Spread():
            raise InvalidRequest(
                f"job {self.id}: an elastic gang cannot say how its workers are spread"
            )

    def ends(self, start: float) -> float:
        """When it will be through at the latest if it starts then; infinity: nobody knows."""
        return inf if self.duration is None else start + self.duration

    def is_expected(self, start: float) -> float:
        """When it is expected to be through if it starts then; infinity: nobody knows."""
        estimate = inf if self.estimate is None else start + self.estimate
        return min(self.ends(start), estimate)

    @property
    def guessed(self) -> bool:
        """Whether it is expected to end before it must."""
        return self.is_expected(0.0) < self.ends(0.0)


@dataclass(frozen=True, slots=True)
class Running:
    """An admitted job. `charge`: what it counts against quotas, from the GPUs it got."""

    job: Job
    placements: Places
    started: float
    charge: Charge

    @property
    def until(self) -> float:
        """When it will be through, as far as is known."""
        return self.job.ends(self.started)

    @property
    def protected_since(self) -> float:
        """From when on it counts for how long it may not be stopped."""
        held = self.job.held_since
        return self.started if held is None else min(held, self.started)

    def lost(self, now: float) -> float:
        """Milli-GPU times seconds that it has had and would lose if it were stopped now.

        An extra worker loses nothing: its gang goes on.
        """
        if self.job.extends is not None:
            return 0.0
        return sum(self.charge.values()) * max(now - self.started, 0.0)


def holder_of(job: JobId, worker: int) -> Holder:
    """As whom a worker stands in the books of a Cluster whose owner has no names of its own."""
    return Holder(f"{job}/{worker}")
