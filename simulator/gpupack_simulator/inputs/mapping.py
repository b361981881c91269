# SPDX-License-Identifier: Apache-2.0
"""The mapping of a table of jobs: a YAML that names its columns and units.

    time: "%Y-%m-%d %H:%M:%S"   # of the time columns: a format; iso; or ns, us, ms, s, min, h, d.
                                # Left out: s
    durations: clock            # of duration and walltime: a unit, or clock ([D-]HH:MM:SS).
                                # Left out: the unit of `time`, or s
    separator: tab              # one character, tab or space; left out: a comma
    header: false               # no line names the columns: they are 1, 2, 3 …; left out: true
    columns:                    # ours: theirs
      id: job_id                # left out: the number of the row
      submitted: submit_time
      duration: duration        # or started and ended, which give it by their difference
      walltime: time_limit      # limit that the user set; for backfill
      gpus: gpu_num             # of the whole job; a fraction of one GPU is a share
      gpuModel: gpu_type        # one, or several joined by |; blank or left out: any
      gpuMemory: gpu_mem        # GiB that each GPU must have
      workers: node_num         # left out: as few as maxGpusPerWorker allows
      cpus: cpu_num             # cores of the whole job; left out: none requested
      priority: priority        # left out: 0
      tenant: vc                # the quota that it counts against; left out: no quota
    maxGpusPerWorker: 8
    minDuration: 1              # seconds; jobs that lasted less count as this long
    only:                       # jobs with another value are left out
      state: [COMPLETED, FAILED]
    leaveOut: [blank, uneven]   # rows that are skipped and are not faults:
                                # blank    a required cell is empty, None, NULL, NA or -
                                # uneven   GPUs cannot be divided by the workers
                                # instant  the job lasts no time
                                # noGpus   it requests none

Skipped rows are counted by reason.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import asdict

from gpupack_simulator.inputs.csvfile import SEPARATORS, TableForm
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.times import DURATION_FORMS, SECONDS_BY_UNIT, wrong_time_form
from gpupack_simulator.inputs.typed import one
from gpupack_simulator.inputs.yamlfile import Document

Name = Annotated[str, Meta(min_length=1)]
Column = Annotated[str, Meta(min_length=1)] | Annotated[int, Meta(ge=1, le=10_000)]
"""A column by its name, or by its number if there is no header."""
Workers = Annotated[int, Meta(ge=1, le=1 << 20)]

BLANKS: Final[dict[str, Any]] = {
    "walltime": None,
    "gpu_model": "",
    "gpu_memory": 0.0,
    "cpus": 0.0,
    "priority": 0,
    "tenant": "",
    "user": "",
}
"""Columns in which a blank cell is valid, with its value."""


class LeaveOut(StrEnum):
    """Rows that are skipped and are not faults."""

    BLANK = "blank"
    UNEVEN = "uneven"
    INSTANT = "instant"
    NO_GPUS = "noGpus"


class Columns(Struct, rename="camel", forbid_unknown_fields=True):
    """Names of columns, by their contents."""

    submitted: Column
    gpus: Column
    id: Column | None = None
    duration: Column | None = None
    started: Column | None = None
    ended: Column | None = None
    walltime: Column | None = None
    gpu_model: Column | None = None
    gpu_memory: Column | None = None
    workers: Column | None = None
    cpus: Column | None = None
    priority: Column | None = None
    tenant: Column | None = None
    user: Column | None = None


class ColumnMapping(Struct, rename="camel", forbid_unknown_fields=True):
    """The mapping of a table of jobs."""

    columns: Columns
    time: Name = "s"
    durations: Name | None = None
    separator: Name = ","
    header: bool = True
    max_gpus_per_worker: Workers = 8
    min_duration: Annotated[float, Meta(gt=0)] | None = None
    only: dict[Name, list[str]] = {}
    leave_out: list[LeaveOut] = []

    @property
    def names(self) -> dict[str, str]:
        """Names of the table's columns, by our names; only those that are given."""
        return given_columns(self.columns)

    @property
    def duration_form(self) -> str:
        """Unit of durations, or `clock`."""
        return self.durations or (self.time if self.time in SECONDS_BY_UNIT else "s")

    @property
    def form(self) -> TableForm:
        """Form of the table."""
        leave_out = LeaveOut.BLANK in self.leave_out
        return table_form(self, blank=BLANKS, leave_out_blank=leave_out)


def table_form(
    mapping: Any, *, blank: Mapping[str, Any], leave_out_blank: bool | None = None
) -> TableForm:
    """Return the form of a table from a mapping with `separator` and `header`."""
    return TableForm(
        separator=SEPARATORS.get(mapping.separator, mapping.separator),
        header=mapping.header,
        blank=blank,
        leave_out_blank=leave_out_blank,
        adjustable=True,
    )


def given_columns(columns: Struct) -> dict[str, str]:
    """Return the columns that a mapping names, by the names of their fields."""
    return {ours: str(theirs) for ours, theirs in asdict(columns).items() if theirs is not None}


def read_mapping(path: Path) -> ColumnMapping:
    """Read the mapping of a table of jobs.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    mapping = one(document.data, ColumnMapping, "", document, faults)
    if mapping is not None:
        names = mapping.names
        if "duration" not in names and not {"started", "ended"} <= names.keys():
            line = document.line("columns")
            faults.add(line, "columns", "needs duration, or both started and ended")
        check_form(mapping, [*names.values(), *mapping.only], document, faults)
        wrong = wrong_time_form(mapping.time)
        if wrong is not None:
            faults.add(document.line("time"), "time", f"{mapping.time!r}: {wrong}")
        if mapping.duration_form not in DURATION_FORMS:
            known = ", ".join(DURATION_FORMS)
            faults.add(
                document.line("durations"),
                "durations",
                f"{mapping.duration_form!r} is no form of a duration; use one of: {known}",
            )
    faults.check()
    if mapping is None:
        raise faults.fatal("is not a mapping")
    return mapping


def check_form(mapping: Any, named: list[str], document: Document, faults: Faults) -> None:
    """Report columns with two meanings, and an invalid separator."""
    for name in sorted({name for name in named if named.count(name) > 1}):
        faults.add(document.line("columns"), "columns", f"{name!r} is given two meanings")
    if len(mapping.separator) > 1 and mapping.separator not in SEPARATORS:
        known = ", ".join(SEPARATORS)
        faults.add(
            document.line("separator"),
            "separator",
            f"{mapping.separator!r} is neither one character nor one of: {known}",
        )
