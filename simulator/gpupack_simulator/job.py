# SPDX-License-Identifier: Apache-2.0
"""What is submitted to the cluster."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite
from typing import Final

from gpupack_core import WHOLE_GPU, Gang, Holder, MilliGpu, Request, Spread
from gpupack_core.queueing import JobId, holder_of
from gpupack_simulator.errors import InvalidJob

__all__ = ["ANYWHERE", "Job", "JobId", "Size", "holder_of", "job_of", "size_of"]

ANYWHERE: Final = Spread()


class Size(StrEnum):
    """Jobs by the GPUs of all workers together: waits and slowdown are told apart for these.

    A gang of two shares counts by what it adds up to.
    """

    NONE = "none"
    SHARE = "share"
    ONE = "one"
    FEW = "2-3"
    HALF = "4-7"
    NODE = "8"
    """8 GPUs and more."""


def size_of(request: Request, workers: int = 1) -> Size:
    """The class of a job of so many workers."""
    if not request.needs_gpu:
        return Size.NONE
    milli = request.milli * workers
    if milli < WHOLE_GPU:
        return Size.SHARE
    least = {Size.NODE: 8, Size.HALF: 4, Size.FEW: 2}
    return next((size for size, gpus in least.items() if milli >= gpus * WHOLE_GPU), Size.ONE)


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
    tenant: str = ""
    """Whose quota and share it counts against, where the discipline looks at them."""
    preemptible: bool = True
    kind: str = ""
    """What its durations are learned by, beside the tenant; empty: its id without a number."""
    min_workers: int | None = None
    """With so many it starts, and grows to `workers`; None: it is as wide as asked for."""
    efficiency: float = 1.0
    """What each worker beyond `min_workers` adds to the speed; `duration` is with all of them."""
    resize_pause: float = 0.0
    """For so long an elastic job stands still when its width has changed."""
    movable: bool = False
    """It may be stopped and started again elsewhere for maintenance, or so that another has room.
    """
    checkpoint: float = inf
    """It saves its work every so much, and goes on from there when it was stopped; infinity: it
    begins anew."""
    restart: float = 0.0
    """For so long it stands still when it starts again."""
    walltime: float | None = None
    """What its user said that it takes at most; None: the user said nothing."""

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidJob("a job needs an id")
        if not (isfinite(self.arrival) and self.arrival >= 0):
            raise InvalidJob(f"job {self.id}: arrival {self.arrival:g} is not 0 or later")
        if not self.duration > 0:
            raise InvalidJob(f"job {self.id}: duration {self.duration:g} is not positive")
        if self.walltime is not None and not self.walltime > 0:
            raise InvalidJob(f"job {self.id}: walltime {self.walltime:g} is not positive")
        if not 1 <= self.least <= self.workers:
            raise InvalidJob(
                f"job {self.id}: minWorkers {self.min_workers} is not from 1 to {self.workers}"
            )
        if not (0 < self.efficiency <= 1 and 0 <= self.resize_pause < inf):
            raise InvalidJob(
                f"job {self.id}: efficiency {self.efficiency:g} is not above 0 and up to 1, or the "
                f"pause {self.resize_pause:g} is negative or without end"
            )
        if self.least < self.workers and self.spread != ANYWHERE:
            raise InvalidJob(f"job {self.id}: it is elastic, and cannot say how it is spread")
        if not (self.checkpoint > 0 and 0 <= self.restart < inf):
            raise InvalidJob(
                f"job {self.id}: checkpoint {self.checkpoint:g} is not positive, or restart "
                f"{self.restart:g} is negative or without end"
            )
        if self.least < self.workers and (self.checkpoint < inf or self.restart):
            raise InvalidJob(f"job {self.id}: of an elastic job checkpoints are not simulated")
        Gang(self.workers, self.request, self.spread)

    @property
    def least(self) -> int:
        """With so many workers it can run."""
        return self.workers if self.min_workers is None else self.min_workers

    @property
    def gang(self) -> Gang:
        """As core plans it."""
        return Gang(self.least, self.request, self.spread)

    @property
    def milli(self) -> MilliGpu:
        """GPU capacity of all workers together."""
        return MilliGpu(self.request.milli * self.workers)

    @property
    def size(self) -> Size:
        """The class in which waits are counted."""
        return size_of(self.request, self.workers)


def job_of(holder: Holder) -> JobId:
    """The reverse of holder_of."""
    return JobId(holder.rpartition("/")[0])
