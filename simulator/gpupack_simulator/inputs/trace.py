# SPDX-License-Identifier: Apache-2.0
"""Job CSVs of other clusters (Philly, Helios …) by a mapping of their columns, given as YAML.

    time: "%Y-%m-%d %H:%M:%S"   # format of the time columns; left out: seconds as numbers
    columns:                    # ours: theirs
      id: job_id
      submitted: submit_time
      duration: duration        # in seconds; or started and ended, the difference of which it is
      gpus: gpu_num             # of the whole job
      workers: node_num         # left out: as few workers as maxGpusPerWorker allows
      cpus: cpu_num             # cores of the whole job; left out: none asked for
      priority: priority        # left out: 0
      tenant: vc                # whose quota it counts against; left out: nobody's
    maxGpusPerWorker: 8
    minDuration: 1              # jobs that lasted less count as this long; left out: a fault
    only:                       # jobs with another value are left out, and counted
      state: [COMPLETED, FAILED]

The first job arrives at 0. GPUs are divided by the workers and must divide evenly.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct, field
from msgspec.structs import asdict

from gpupack_core import MilliCpu, Request
from gpupack_simulator.inputs.csvfile import Line, read_rows
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.typed import one
from gpupack_simulator.inputs.yamlfile import Document
from gpupack_simulator.job import Job, JobId

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=1 << 20)]
Workers = Annotated[int, Meta(ge=1, le=1 << 20)]
Cores = Annotated[float, Meta(ge=0, le=1 << 20)]


class Columns(Struct, forbid_unknown_fields=True):
    """The names of their columns."""

    id: Name
    submitted: Name
    gpus: Name
    duration: Name | None = None
    started: Name | None = None
    ended: Name | None = None
    workers: Name | None = None
    cpus: Name | None = None
    priority: Name | None = None
    tenant: Name | None = None


class ColumnMapping(Struct, rename="camel", forbid_unknown_fields=True):
    """How to read a trace."""

    columns: Columns
    time: Name | None = None
    max_gpus_per_worker: Workers = 8
    min_duration: Annotated[float, Meta(gt=0)] | None = None
    only: dict[Name, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Trace:
    """`left_out`: jobs of the file that are not wanted, or that never ran."""

    jobs: tuple[Job, ...]
    left_out: int


def read_mapping(path: Path) -> ColumnMapping:
    """Raises InvalidInput with every fault of the file."""
    faults = Faults(path)
    document = Document(faults)
    mapping = one(document.data, ColumnMapping, "", document, faults)
    if mapping is not None:
        columns = mapping.columns
        if columns.duration is None and None in {columns.started, columns.ended}:
            line = document.line("columns")
            faults.add(line, "columns", "needs duration, or both started and ended")
        named = [*filter(None, asdict(columns).values()), *mapping.only]
        for name in sorted({name for name in named if named.count(name) > 1}):
            faults.add(document.line("columns"), "columns", f"{name!r} is given two meanings")
        wrong = None if mapping.time is None else _wrong_format(mapping.time)
        if wrong is not None:
            faults.add(document.line("time"), "time", f"{mapping.time!r}: {wrong}")
    faults.check()
    if mapping is None:
        raise faults.fatal("is not a mapping")
    return mapping


def _wrong_format(form: str) -> str | None:
    """Why nothing is a time in this format; by writing one in it and reading that."""
    try:
        datetime.strptime(datetime.now(UTC).strftime(form), form)  # noqa: DTZ007  # as it may be
    except re.error:
        return "names a part of the time twice"
    except ValueError as error:
        return str(error)
    return None


def read_trace(path: Path, mapping: ColumnMapping) -> Trace:
    """The jobs in the order of their arrival.

    Raises:
        InvalidInput: with every fault of the file.
    """
    faults = Faults(path)
    rows = _Rows(mapping, faults)
    lines = rows.wanted(read_rows(_row_type(mapping), faults))
    found = [job for line in lines if (job := rows.job(line)) is not None]
    if not found and not len(faults):
        faults.add(0, "", "has no jobs" + (", or `only` wants none" if mapping.only else ""))
    faults.check()
    first = min(submitted for submitted, _ in found)
    jobs = [replace(job, arrival=submitted - first) for submitted, job in found]
    return Trace(tuple(from_zero(jobs, 0.0)), rows.left_out)


def _row_type(mapping: ColumnMapping) -> type[Struct]:
    """A row by our names, read from columns by theirs."""
    time: Any = float if mapping.time is None else str
    types: dict[str, Any] = {
        "id": Name,
        "submitted": time,
        "started": time,
        "ended": time,
        "duration": float,
        "gpus": Count,
        "workers": Workers,
        "cpus": Cores,
        "priority": int,
        "tenant": str,
    }
    columns = asdict(mapping.columns)
    fields = [(ours, types[ours], field(name=theirs)) for ours, theirs in columns.items() if theirs]
    fields += [
        (_only(number), str, field(name=theirs)) for number, theirs in enumerate(mapping.only)
    ]
    return defstruct("TraceRow", fields)


def _only(number: int) -> str:
    return f"only_{number}"


class _Rows:
    """Turns rows of one trace into jobs."""

    def __init__(self, mapping: ColumnMapping, faults: Faults) -> None:
        self._mapping, self._columns, self._faults = mapping, mapping.columns, faults
        self._lines: dict[str, int] = {}
        self.left_out = 0

    def wanted(self, lines: list[Line[Any]]) -> list[Line[Any]]:
        """Without those that `only` leaves out."""
        wishes = list(enumerate(self._mapping.only.values()))
        kept = [
            line
            for line in lines
            if all(getattr(line.row, _only(number)) in values for number, values in wishes)
        ]
        self.left_out = len(lines) - len(kept)
        return kept

    def job(self, line: Line[Any]) -> tuple[float, Job] | None:
        """When it was submitted, which may be before zero, and a job of time 0. None: a fault."""
        row, before = line.row, len(self._faults)
        if self._lines.setdefault(row.id, line.number) != line.number:
            self._fault(line, "id", f"{row.id!r} stands on line {self._lines[row.id]} too")
        submitted, duration = self._time(line, "submitted"), self._duration(line)
        workers = self._workers(line)
        cores = self._cores(line, workers)
        if len(self._faults) > before:
            return None
        return submitted, Job(
            JobId(row.id),
            0.0,
            Request(gpus=row.gpus // workers, cpu=cores),
            workers,
            duration,
            getattr(row, "priority", 0),
            tenant=getattr(row, "tenant", ""),
        )

    def _duration(self, line: Line[Any]) -> float:
        if self._columns.duration is not None:
            column, seconds = "duration", line.row.duration
        else:
            column, seconds = "ended", self._time(line, "ended") - self._time(line, "started")
        least = self._mapping.min_duration
        if least is not None and isfinite(seconds):
            return float(max(seconds, least))
        if not (seconds > 0 and isfinite(seconds)):
            self._fault(line, column, f"the job lasts {seconds:g} s, which is not positive")
        return float(seconds)

    def _time(self, line: Line[Any], ours: str) -> float:
        """Seconds since some beginning."""
        value, form = getattr(line.row, ours), self._mapping.time
        if form is None:
            if not isfinite(value):
                self._fault(line, ours, f"{value} is no time")
            return float(value)
        try:
            time = datetime.strptime(value, form)  # noqa: DTZ007  # a format may know the zone
        except ValueError:
            self._fault(line, ours, f"{value!r} is not a time as in {form!r}")
            return 0.0
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()

    def _workers(self, line: Line[Any]) -> int:
        gpus, most = line.row.gpus, self._mapping.max_gpus_per_worker
        workers = getattr(line.row, "workers", None)
        if workers is None:
            return as_few_workers(gpus, most)
        if gpus % workers:
            self._fault(line, "gpus", f"{gpus} GPUs are not divisible by {workers} workers")
        elif gpus > workers * most:
            self._fault(line, "gpus", f"{gpus // workers} GPUs per worker are more than {most}")
        return int(workers)

    def _cores(self, line: Line[Any], workers: int) -> MilliCpu:
        return MilliCpu(round(getattr(line.row, "cpus", 0.0) * 1000 / workers))

    def _fault(self, line: Line[Any], ours: str, message: str) -> None:
        theirs = getattr(self._columns, ours)
        self._faults.add(line.number, theirs, message)


def as_few_workers(gpus: int, most: int) -> int:
    """Workers of equally many GPUs, at most so many each."""
    return next(n for n in range(1, gpus + 2) if gpus % n == 0 and gpus <= n * most)


def from_zero(jobs: list[Job], first: float) -> Iterator[Job]:
    """In the order of arrival, on a clock that shows 0 at the time given."""
    for job in sorted(jobs, key=lambda job: job.arrival):
        yield replace(job, arrival=job.arrival - first)
