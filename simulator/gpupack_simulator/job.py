# SPDX-License-Identifier: Apache-2.0
"""Jobs that are submitted to the cluster."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite
from typing import Final

from gpupack_placement import WHOLE_GPU, Gang, Holder, MilliGpu, Request, Spread
from gpupack_queue import JobId, holder_name
from gpupack_simulator.errors import InvalidJob

__all__ = ["ANYWHERE", "Job", "JobId", "Size", "holder_name", "job_of", "size_of"]

ANYWHERE: Final = Spread()


class Size(StrEnum):
    """The size of a job by the GPUs of all workers: waits and slowdowns are grouped by it.

    A gang of two shares counts by their sum.
    """

    NONE = "none"
    SHARE = "share"
    ONE = "one"
    FEW = "2-3"
    HALF = "4-7"
    NODE = "8"
    """8 GPUs and more."""


def size_of(request: Request, workers: int = 1) -> Size:
    """Return the size of a job with this many workers."""
    if not request.needs_gpu:
        return Size.NONE
    milli = request.milli * workers
    if milli < WHOLE_GPU:
        return Size.SHARE
    least = {Size.NODE: 8, Size.HALF: 4, Size.FEW: 2}
    return next((size for size, gpus in least.items() if milli >= gpus * WHOLE_GPU), Size.ONE)


@dataclass(frozen=True, slots=True)
class Job:
    """A job: `workers` times the request, placed together or not at all.

    `arrival` and `duration` are in the time unit of the run (record.Run.time_unit). A job with an
    infinite duration never ends. The larger `priority` goes first if the discipline uses
    priorities.
    """

    id: JobId
    arrival: float
    request: Request
    workers: int = 1
    duration: float = inf
    priority: int = 0
    spread: Spread = ANYWHERE
    tenant: str = ""
    """Tenant with the quota and share that the job counts against, if the discipline uses them."""
    preemptible: bool = True
    kind: str = ""
    """Kind by which its durations are learned, together with the tenant; empty: its ID without a
    number."""
    min_workers: int | None = None
    """Number of workers at its start; it grows to `workers`. None: it is not elastic."""
    efficiency: float = 1.0
    """Speed that each worker beyond `min_workers` adds; `duration` is with all workers."""
    resize_pause: float = 0.0
    """Pause of an elastic job after a change of its width."""
    movable: bool = False
    """Whether it may be stopped and started elsewhere for maintenance or for another job."""
    checkpoint: float = inf
    """Interval at which it saves its work; after a stop it continues from there. Infinity: it
    starts again from the beginning."""
    reports_checkpoints: bool = False
    """Whether it reports its checkpoints to the queue, as GPUJobs do by an annotation."""
    restart: float = 0.0
    """Pause when it starts again."""
    walltime: float | None = None
    """Limit that its user set; None: no limit."""
    user: str = ""
    """User of the tenant, if the tenant's users take turns; empty: unknown."""
    model_fallback: float | None = None
    """Time of waiting that permits one more of its models, which are in order of preference; None:
    all are permitted from the start."""
    reservation: str = ""
    """Time-window reservation of its tenant whose GPUs it may use; empty: none."""

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidJob("a job needs an id")
        if not (isfinite(self.arrival) and self.arrival >= 0):
            raise InvalidJob(f"job {self.id}: arrival {self.arrival:g} is not 0 or later")
        self._check_times()
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
        Gang.of(self.workers, self.request, self.spread)

    def _check_times(self) -> None:
        for what, time in (
            ("duration", self.duration),
            ("walltime", self.walltime),
            ("model fallback", self.model_fallback),
        ):
            if time is not None and not time > 0:
                raise InvalidJob(f"job {self.id}: {what} {time:g} is not positive")

    @property
    def least(self) -> int:
        """Fewest workers with which it can run."""
        return self.workers if self.min_workers is None else self.min_workers

    @property
    def gang(self) -> Gang:
        """Gang that placement plans."""
        return Gang.of(self.least, self.request, self.spread)

    @property
    def milli(self) -> MilliGpu:
        """GPU capacity of all workers together."""
        return MilliGpu(self.request.milli * self.workers)

    @property
    def size(self) -> Size:
        """Size class in which its wait counts."""
        return size_of(self.request, self.workers)


def job_of(holder: Holder) -> JobId:
    """Return the job of a holder: the reverse of holder_of."""
    return JobId(holder.rpartition("/")[0])
