# SPDX-License-Identifier: Apache-2.0
"""What is submitted to the cluster."""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final, NewType

from gpupack_core import Gang, Holder, MilliGpu, Request, Spread
from gpupack_simulator.errors import InvalidJob
from gpupack_simulator.size import Size, size_of

JobId = NewType("JobId", str)

ANYWHERE: Final = Spread()


@dataclass(frozen=True, slots=True)
class Job:
    """`workers` times the request, placed together or not at all.

    `arrival` and `duration` are in the time unit of the run (record.Run.time_unit). A duration of
    infinity never ends. The larger `priority` goes first where the discipline looks at it.
    """

    id: JobId
    arrival: float
    request: Request
    workers: int = 1
    duration: float = inf
    priority: int = 0
    spread: Spread = ANYWHERE

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidJob("a job needs an id")
        if not (isfinite(self.arrival) and self.arrival >= 0):
            raise InvalidJob(f"job {self.id}: arrival {self.arrival:g} is not 0 or later")
        if not self.duration > 0:
            raise InvalidJob(f"job {self.id}: duration {self.duration:g} is not positive")
        Gang(self.workers, self.request, self.spread)

    @property
    def gang(self) -> Gang:
        """As core plans it."""
        return Gang(self.workers, self.request, self.spread)

    @property
    def milli(self) -> MilliGpu:
        """GPU capacity of all workers together."""
        return MilliGpu(self.request.milli * self.workers)

    @property
    def size(self) -> Size:
        """The class in which waits are counted."""
        return size_of(self.request, self.workers)


def holder_of(job: JobId, worker: int) -> Holder:
    """As whom a worker of the job stands in the books of core's Cluster."""
    return Holder(f"{job}/{worker}")


def job_of(holder: Holder) -> JobId:
    """The reverse of holder_of."""
    return JobId(holder.rpartition("/")[0])
