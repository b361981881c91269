# SPDX-License-Identifier: Apache-2.0
"""Tables of jobs from other clusters (Philly, Helios …), read with a mapping (mapping.py).

The first job arrives at 0. GPUs are divided by the workers and must divide evenly; less than one
GPU per worker is a share.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, defstruct, field

from gpupack_placement import WHOLE_GPU, MiB, MilliCpu, MilliGpu, Request, Share
from gpupack_simulator.inputs.csvfile import BLANK_HINT, Line, is_blank, read_table
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.mapping import ColumnMapping, LeaveOut, Name, Workers
from gpupack_simulator.inputs.times import NotATime, duration_seconds, is_number_form, seconds_at
from gpupack_simulator.job import Job, JobId

_MIB_PER_GIB: Final = 1024
Gpus = Annotated[float, Meta(ge=0, le=1 << 20)]
Amount = Annotated[float, Meta(ge=0, le=1 << 20)]

REASONS: Final[dict[str, str]] = {
    LeaveOut.BLANK: "a value is missing",
    LeaveOut.UNEVEN: "GPUs cannot be divided by the workers",
    LeaveOut.INSTANT: "no duration",
    LeaveOut.NO_GPUS: "no GPUs",
}
OTHER_VALUES: Final = "`only` wants other values"


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a file, and the number of rows left out, by reason."""

    jobs: tuple[Job, ...]
    left_out: Mapping[str, int]


def read_trace(path: Path, mapping: ColumnMapping) -> Trace:
    """Read the jobs, in the order of their arrival.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    rows = _Rows(mapping, faults)
    table = read_table(_row_type(mapping), faults, mapping.form)
    rows.left_out[REASONS[LeaveOut.BLANK]] += table.left_out
    found = [job for line in rows.wanted(table.lines) if (job := rows.job(line)) is not None]
    left_out = {why: number for why, number in rows.left_out.items() if number}
    if not found and not len(faults):
        faults.add(0, "", "has no jobs" + (f"; {described_left_out(left_out)}" if left_out else ""))
    faults.check()
    first = min(submitted for submitted, _ in found)
    jobs = [replace(job, arrival=submitted - first) for submitted, job in found]
    return Trace(tuple(from_zero(jobs, 0.0)), left_out)


def described_left_out(left_out: Mapping[str, int]) -> str:
    """Describe how many rows were left out, and why."""
    total = sum(left_out.values())
    why = ", ".join(f"{number}: {reason}" for reason, number in left_out.items())
    return f"{total} {'row' if total == 1 else 'rows'} left out ({why})"


def _row_type(mapping: ColumnMapping) -> type[Struct]:
    """Make the type of a row, with our names, read from the table's columns."""
    time: Any = float if is_number_form(mapping.time) else str
    lasts: Any = float if is_number_form(mapping.duration_form) else str
    types: dict[str, Any] = {
        "id": Name,
        "submitted": time,
        "started": time,
        "ended": time,
        "duration": lasts,
        "walltime": lasts,
        "gpus": Gpus,
        "gpu_model": str,
        "gpu_memory": Amount,
        "workers": Workers,
        "cpus": Amount,
        "priority": int,
        "tenant": str,
        "user": str,
    }
    fields = [(ours, types[ours], field(name=theirs)) for ours, theirs in mapping.names.items()]
    fields += [
        (_only(number), str, field(name=theirs)) for number, theirs in enumerate(mapping.only)
    ]
    return defstruct("TraceRow", fields)


def _only(number: int) -> str:
    return f"only_{number}"


class _Rows:
    """The rows of one trace and their conversion to jobs."""

    def __init__(self, mapping: ColumnMapping, faults: Faults) -> None:
        self._mapping, self._names, self._faults = mapping, mapping.names, faults
        self._lines: dict[str, int] = {}
        self.left_out = Counter[str]()

    def wanted(self, lines: list[Line[Any]]) -> list[Line[Any]]:
        """Leave out rows that `only` excludes."""
        wishes = list(enumerate(self._mapping.only.values()))
        kept = [
            line
            for line in lines
            if all(getattr(line.row, _only(number)) in values for number, values in wishes)
        ]
        self.left_out[OTHER_VALUES] += len(lines) - len(kept)
        return kept

    def job(self, line: Line[Any]) -> tuple[float, Job] | None:
        """Return the submission time and a job that arrives at 0; None: left out, or a fault."""
        row, before = line.row, len(self._faults)
        name = self._id(line)
        submitted, duration = self._time(line, "submitted"), self._duration(line)
        workers, each = self._workers(line)
        left_out = self._left_out(row.gpus, duration, each)
        if left_out is not None:
            self.left_out[REASONS[left_out]] += 1
            return None
        self._judge(line, duration, workers, each)
        walltime = self._walltime(line)
        if len(self._faults) > before:
            return None
        job = Job(
            JobId(name),
            0.0,
            self._request(row, each, workers),
            workers,
            duration,
            getattr(row, "priority", 0),
            tenant=getattr(row, "tenant", ""),
            walltime=walltime,
            user=getattr(row, "user", ""),
        )
        return submitted, job

    def _id(self, line: Line[Any]) -> str:
        if "id" not in self._names:
            return str(line.number - self._mapping.header)
        name: str = line.row.id
        if self._lines.setdefault(name, line.number) != line.number:
            self._fault(line, "id", f"{name!r} stands on line {self._lines[name]} too")
        return name

    def _left_out(self, gpus: float, duration: float, each: float) -> LeaveOut | None:
        reasons = {
            LeaveOut.NO_GPUS: not gpus,
            LeaveOut.UNEVEN: not _can_be_had(each),
            LeaveOut.INSTANT: duration <= 0,
        }
        wanted = self._mapping.leave_out
        return next((why for why, so in reasons.items() if so and why in wanted), None)

    def _judge(self, line: Line[Any], duration: float, workers: int, each: float) -> None:
        gpus, most = line.row.gpus, self._mapping.max_gpus_per_worker
        if not _can_be_had(each):
            message = f"{gpus:g} GPUs are not divisible by {workers} workers"
            self._fault(line, "gpus", f"{message}; `leaveOut: [{LeaveOut.UNEVEN}]` skips such jobs")
        elif each > most:
            self._fault(line, "gpus", f"{each:g} GPUs per worker are more than {most}")
        if duration <= 0:
            column = "duration" if "duration" in self._names else "ended"
            message = f"the job lasts {duration:g} s, which is not positive"
            help_ = f"give a minDuration, or `leaveOut: [{LeaveOut.INSTANT}]`"
            self._fault(line, column, f"{message}; {help_}")

    def _duration(self, line: Line[Any]) -> float:
        if "duration" in self._names:
            seconds = self._lasts(line, "duration")
        else:
            seconds = self._time(line, "ended") - self._time(line, "started")
        least = self._mapping.min_duration
        return seconds if least is None or not isfinite(seconds) else max(seconds, least)

    def _walltime(self, line: Line[Any]) -> float | None:
        if getattr(line.row, "walltime", None) is None:
            return None
        seconds = self._lasts(line, "walltime")
        return seconds if seconds > 0 else None

    def _lasts(self, line: Line[Any], ours: str) -> float:
        try:
            return duration_seconds(getattr(line.row, ours), self._mapping.duration_form)
        except NotATime as error:
            self._fault(line, ours, str(error))
            return 1.0

    def _time(self, line: Line[Any], ours: str) -> float:
        cell = getattr(line.row, ours)
        try:
            return seconds_at(cell, self._mapping.time)
        except NotATime as error:
            blank = isinstance(cell, str) and is_blank(cell)
            self._fault(line, ours, f"{error}{BLANK_HINT if blank else ''}")
            return 0.0 if ours != "ended" else 1.0

    def _workers(self, line: Line[Any]) -> tuple[int, float]:
        """Return the number of workers, and the GPUs of each."""
        gpus: float = line.row.gpus
        workers: int | None = getattr(line.row, "workers", None)
        if workers is None:
            most = self._mapping.max_gpus_per_worker
            workers = as_few_workers(int(gpus), most) if gpus.is_integer() else 1
        return workers, gpus / workers

    def _request(self, row: Any, each: float, workers: int) -> Request:
        """Make the request of one worker."""
        models: str = getattr(row, "gpu_model", "") if each else ""
        milli = MilliGpu(round(each * WHOLE_GPU))
        share = Share(milli, MiB(0)) if 0 < milli < WHOLE_GPU else None
        return Request(
            gpus=None if share else int(each),
            share=share,
            models=tuple(name.strip() for name in models.split("|") if name.strip()),
            min_memory=MiB(round(getattr(row, "gpu_memory", 0.0) * _MIB_PER_GIB) if each else 0),
            cpu=MilliCpu(round(getattr(row, "cpus", 0.0) * 1000 / workers)),
        )

    def _fault(self, line: Line[Any], ours: str, message: str) -> None:
        self._faults.add(line.number, self._names[ours], message)


def _can_be_had(gpus: float) -> bool:
    """Tell whether a worker can have this many: whole GPUs, or a share of one."""
    return gpus.is_integer() or WHOLE_GPU > round(gpus * WHOLE_GPU) > 0


def as_few_workers(gpus: int, most: int) -> int:
    """Return the fewest workers with equal GPUs, at most `most` each, for this many GPUs."""
    return next(n for n in range(1, gpus + 2) if gpus % n == 0 and gpus <= n * most)


def from_zero(jobs: list[Job], first: float) -> Iterator[Job]:
    """Yield jobs in the order of arrival, on a clock that is 0 at the given time."""
    for job in sorted(jobs, key=lambda job: job.arrival):
        yield replace(job, arrival=job.arrival - first)
