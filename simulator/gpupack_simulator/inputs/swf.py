# SPDX-License-Identifier: Apache-2.0
"""Traces in the Standard Workload Format (version 2.2) of the Parallel Workloads Archive.

Source: Chapin et al., «Benchmarks and Standards for the Evaluation of Parallel Job Schedulers»
(JSSPP '99), and https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.

A line is a job: 18 numbers, -1 for an unknown value. Lines that begin with `;` are comments; those
at the top may be header fields, `; MaxProcs: 128`. The conversion of a line:

    processors   requested, else allocated; GPUs = processors / processorsPerGpu, rounded up
    workers      as few as maxGpusPerWorker allows, with equal numbers of GPUs
    run time     the duration; 0 means less than half a second, and counts as half a second
    tenant       «user-7», by the column that is chosen; -1: no tenant
    left out     jobs that never ran (no run time or no processors, -1), and statuses 2 to 4: parts
                 of a job that has a line of its own

The requested time is the walltime, which backfill can use. Wait time, memory, and «preceding job»
with its think time are not used: jobs arrive when they arrived in the log. The first one arrives at
0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

from gpupack_placement import Request
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.compression import UNREADABLE, open_unpacked, unreadable
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.trace import Trace, as_few_workers, from_zero
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.workload import MAX_JOBS

SUFFIX: Final = ".swf"

FIELDS: Final = (
    *("job number", "submit time", "wait time", "run time", "allocated processors"),
    *("average CPU time", "used memory", "requested processors", "requested time"),
    *("requested memory", "status", "user", "group", "executable", "queue", "partition"),
    *("preceding job", "think time"),
)
_TIMES: Final = frozenset({"submit time", "wait time", "run time", "average CPU time"}) | {
    *("used memory", "requested time", "requested memory", "think time")
}
"""Fields that may have decimals: the format allows them for times, and logs have them for
memory."""

UNKNOWN: Final = -1
_PARTS: Final = frozenset({2, 3, 4})
_LAST_STATUS: Final = 5
_SHORTEST: Final = 0.5
"""Seconds; shorter times are logged as 0."""
_LONGEST_LINE: Final = 4096
_MAX_FAULTS: Final = 1000
_MAX_PROCESSORS: Final = 1 << 20
_NUMBER: Final = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]{1,12}", re.ASCII)
_HEADER: Final = re.compile(r";\s*(\w+):\s*(.*?)\s*$", re.ASCII)
_SHOWN: Final = 40
_NEVER_RAN: Final = "never ran, or part of a job"


class TenantColumn(StrEnum):
    """The column that names the tenant."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"
    PARTITION = "partition"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfRules:
    """The conversion of processors to GPUs, and the column that names the tenant."""

    processors_per_gpu: int = 1
    max_gpus_per_worker: int = 8
    tenants: TenantColumn = TenantColumn.USER

    def __post_init__(self) -> None:
        if not 1 <= self.processors_per_gpu <= _MAX_PROCESSORS:
            raise InvalidParameter(
                f"{self.processors_per_gpu} processors per GPU: use 1 to {_MAX_PROCESSORS:,}"
            )
        if not 1 <= self.max_gpus_per_worker <= _MAX_PROCESSORS:
            raise InvalidParameter(
                f"{self.max_gpus_per_worker} GPUs per worker: use 1 to {_MAX_PROCESSORS:,}"
            )


@dataclass(frozen=True, slots=True)
class SwfTrace(Trace):
    """A trace with the header's size of the machine and start of the log.

    None: the header does not have the field.
    """

    max_procs: int | None = None
    unix_start_time: int | None = None


def read_swf(path: Path, rules: SwfRules) -> SwfTrace:
    """Read the jobs in the order of their arrival.

    Raises:
        InvalidInput: every fault of the file, up to the first thousand.
    """
    faults = Faults(path)
    reading = _Reading(rules, faults)
    try:
        with (
            open_unpacked(path, faults) as unpacked,
            TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace") as file,
        ):
            for number, line in enumerate(_lines(file, faults), start=1):
                reading.line(number, line)
                if len(faults) >= _MAX_FAULTS:
                    break
    except UNREADABLE as error:
        raise unreadable(error, faults) from error
    if not reading.jobs and not len(faults):
        faults.add(0, "", f"has no jobs that ran; {reading.left_out} lines were left out")
    faults.check()
    jobs = reading.jobs
    first = min(job.arrival for job in jobs)
    header = reading.header
    return SwfTrace(
        tuple(from_zero(jobs, first)),
        {_NEVER_RAN: reading.left_out} if reading.left_out else {},
        header.get("MaxProcs"),
        header.get("UnixStartTime"),
    )


def _lines(file: TextIO, faults: Faults) -> Iterator[str]:
    """Yield lines, and read no more of one than its maximum length."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise faults.fatal(f"is longer than {_LONGEST_LINE} letters", line=number)
        yield line


@dataclass(slots=True)
class _Reading:
    """The state of reading one file."""

    rules: SwfRules
    faults: Faults
    jobs: list[Job] = field(default_factory=list)
    header: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    _lines: dict[int, int] = field(default_factory=dict)
    _requests: dict[int, tuple[Request, int]] = field(default_factory=dict)

    def line(self, number: int, line: str) -> None:
        text = line.strip()
        if text.startswith(";"):
            self._comment(number, text)
        elif text:
            values = self._values(number, text.split())
            if values is not None:
                self._job(number, values)

    def _comment(self, number: int, text: str) -> None:
        """Read header fields from a comment; those that are used must have a valid value."""
        found = _HEADER.match(text)
        if found is None or found[1] not in {"MaxProcs", "UnixStartTime"}:
            return
        value = found[2].split()[0] if found[2] else ""
        if _WHOLE.fullmatch(value) and int(value) >= 0:
            self.header[found[1]] = int(value)
        elif value != str(UNKNOWN):
            self._fault(number, found[1], f"{_shown(found[2])} is not a whole number, 0 or more")

    def _values(self, number: int, cells: list[str]) -> dict[str, float] | None:
        if len(cells) != len(FIELDS):
            self._fault(number, "", f"has {len(cells)} numbers; the format has {len(FIELDS)}")
            return None
        values, before = {}, len(self.faults)
        for name, cell in zip(FIELDS, cells, strict=True):
            form = _NUMBER if name in _TIMES else _WHOLE
            if not form.fullmatch(cell):
                what = "a number" if name in _TIMES else "a whole number"
                self._fault(number, name, f"{_shown(cell)} is not {what} of at most 12 digits")
                continue
            value = float(cell) if "." in cell else int(cell)
            if value < 0 and value != UNKNOWN:
                self._fault(number, name, f"{cell} is negative; -1 alone says that it is not known")
            values[name] = value
        return values if len(self.faults) == before else None

    def _job(self, number: int, values: dict[str, float]) -> None:
        before = len(self.faults)
        status = int(values["status"])
        if status > _LAST_STATUS:
            self._fault(number, "status", f"{status} is none of -1 to {_LAST_STATUS}")
        if values["submit time"] < 0:
            self._fault(number, "submit time", "is not known, so that it never arrives")
        processors = next(
            (
                int(n)
                for n in (values["requested processors"], values["allocated processors"])
                if n > 0
            ),
            0,
        )
        if processors > _MAX_PROCESSORS:
            name = "requested processors" if values["requested processors"] > 0 else FIELDS[4]
            self._fault(number, name, f"{processors:,} are more than {_MAX_PROCESSORS:,}")
        if len(self.faults) > before:
            return
        if status in _PARTS or not processors or values["run time"] == UNKNOWN:
            self.left_out += 1
            return
        self._add(number, values, processors)

    def _add(self, number: int, values: dict[str, float], processors: int) -> None:
        job = int(values["job number"])
        first = self._lines.setdefault(job, number)
        if first != number:
            self._fault(number, "job number", f"{job} stands on line {first} too")
            return
        if len(self.jobs) >= MAX_JOBS:
            raise self.faults.fatal(f"has more than {MAX_JOBS:,} jobs", line=number)
        request, workers = self._request(processors)
        self.jobs.append(
            Job(
                JobId(str(job)),
                float(values["submit time"]),
                request,
                workers,
                max(float(values["run time"]), _SHORTEST),
                tenant=self._tenant(values),
                walltime=_walltime(values),
            )
        )

    def _request(self, processors: int) -> tuple[Request, int]:
        known = self._requests.get(processors)
        if known is None:
            gpus = -(-processors // self.rules.processors_per_gpu)
            workers = as_few_workers(gpus, self.rules.max_gpus_per_worker)
            known = self._requests[processors] = Request(gpus=gpus // workers), workers
        return known

    def _tenant(self, values: dict[str, float]) -> str:
        column = self.rules.tenants
        if column is TenantColumn.NONE or values[column] == UNKNOWN:
            return ""
        return f"{column}-{int(values[column])}"

    def _fault(self, number: int, name: str, message: str) -> None:
        self.faults.add(number, name, message)


def _walltime(values: dict[str, float]) -> float | None:
    """Return the limit that the user requested; None: unknown."""
    return float(values["requested time"]) if values["requested time"] > 0 else None


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}…")
