# SPDX-License-Identifier: Apache-2.0
"""GPUReservation: GPUs that a namespace reserves from one time to another, once or repeatedly.

Users of the namespace write the spec, the extender writes the status.
"""

from typing import Annotated, ClassVar, Final, Literal

from gpupack_crds.condition import BY_TYPE, Condition
from gpupack_crds.wire import Rule, Timestamp, Wire, described

MAX_GPUS: Final = 100_000
MAX_USERS: Final = 64
MAX_DAYS: Final = 14
"""Maximum days of a window that is not repeated."""

RECURRENCE_PATTERN: Final = (
    "^FREQ=(DAILY|WEEKLY|MONTHLY)(;("
    "INTERVAL=[1-9][0-9]?|COUNT=[1-9][0-9]{0,2}|UNTIL=[0-9]{8}T[0-9]{6}Z|"
    "BYDAY=(MO|TU|WE|TH|FR|SA|SU)(,(MO|TU|WE|TH|FR|SA|SU)){0,6}|"
    "BYMONTHDAY=-?[1-9][0-9]?(,-?[1-9][0-9]?){0,30}))*$"
)
"""Form of an RRULE of RFC 5545 with at most one window on a day."""

TIME_ZONE_PATTERN: Final = "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$"

ACCEPTED: Final = "Accepted"
"""Type of the condition that says whether the reservation stands."""
HONORED: Final = "Honored"
"""Type of the condition that says whether the GPUs of the current or next window are there."""


class GpuReservationSpec(Wire, frozen=True):
    """How many GPUs a namespace reserves, and when. The spec is fixed once the object exists.

    The namespace's GPUQuota must guarantee as many GPUs of the model as all reservations of the
    namespace have at any time.
    """

    model: Annotated[
        str,
        described(
            "GPU model, as the namespace's GPUQuota names it, or any name that matches the GPUs.",
            min_length=1,
            max_length=64,
        ),
    ] = ""
    gpus: Annotated[int, described("Number of GPUs, on any nodes.", ge=1, le=MAX_GPUS)] | None = (
        None
    )
    nodes: (
        Annotated[
            int,
            described(
                "Number of nodes with gpusPerNode GPUs each, instead of gpus.", ge=1, le=MAX_GPUS
            ),
        ]
        | None
    ) = None
    gpus_per_node: (
        Annotated[int, described("Number of GPUs on each of the nodes.", ge=1, le=1024)] | None
    ) = None
    start_time: Annotated[
        Timestamp, described("Start of the window, or of the first one if it is repeated.")
    ] = ""
    end_time: Annotated[
        Timestamp,
        described(
            f"End of the same window: at most {MAX_DAYS} days after its start, and at most 24 "
            "hours if it is repeated."
        ),
    ] = ""
    recurrence: (
        Annotated[
            str,
            described(
                "Rule of RFC 5545 by which the window is repeated, such as "
                "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR. Default: it is not repeated.",
                max_length=256,
                pattern=RECURRENCE_PATTERN,
            ),
        ]
        | None
    ) = None
    time_zone: Annotated[
        str,
        described(
            "Time zone in which a repeated window keeps its time of day, such as Europe/Berlin. "
            "Default: UTC.",
            max_length=64,
            pattern=TIME_ZONE_PATTERN,
        ),
    ] = "UTC"
    users: Annotated[
        tuple[
            Annotated[
                str,
                described(
                    "Name of a GPUJob or pod of the namespace; * at its end: any that begins so.",
                    min_length=1,
                    max_length=253,
                    pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?[*]?$|^[a-z0-9][-a-z0-9.]*[*]$",
                ),
            ],
            ...,
        ],
        described(
            "GPUJobs and standalone pods that may use the reservation. Default: all of the "
            "namespace that name it.",
            max_length=MAX_USERS,
            schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()

    rules: ClassVar = (
        Rule(
            "has(self.gpus) != has(self.nodes) && has(self.nodes) == has(self.gpusPerNode)",
            "set either gpus, or nodes and gpusPerNode",
        ),
        Rule("has(self.model)", "name the GPU model", ".model"),
        Rule(
            "has(self.startTime) && has(self.endTime)",
            "set startTime and endTime, such as 2026-12-07T09:00:00Z",
        ),
        Rule(
            "!has(self.startTime) || !has(self.endTime) || "
            "timestamp(self.startTime) < timestamp(self.endTime)",
            "endTime must be after startTime",
            ".endTime",
        ),
        Rule(
            "!has(self.startTime) || !has(self.endTime) || timestamp(self.endTime) - "
            f"timestamp(self.startTime) <= duration('{24 * MAX_DAYS}h')",
            f"a window lasts at most {MAX_DAYS} days",
            ".endTime",
        ),
        Rule(
            "!has(self.recurrence) || !has(self.startTime) || !has(self.endTime) || "
            "timestamp(self.endTime) - timestamp(self.startTime) <= duration('24h')",
            "a repeated window lasts at most 24 hours",
            ".endTime",
        ),
    )

    @property
    def units(self) -> int:
        """Number of nodes, or of GPUs on any nodes."""
        return self.nodes or self.gpus or 0

    @property
    def gpus_per_unit(self) -> int:
        """GPUs of one unit."""
        return self.gpus_per_node or 1 if self.nodes else 1

    @property
    def total_gpus(self) -> int:
        """Number of reserved GPUs."""
        return self.units * self.gpus_per_unit


FIXED_RULE: Final = Rule(
    "self == oldSelf",
    "a reservation cannot change; delete it and create another one",
)

Phase = Literal["", "Refused", "Upcoming", "Active", "Ended"]


class GpuReservationStatus(Wire, frozen=True):
    """The current or next window, and its GPUs. The extender writes it, a few seconds late."""

    observed_generation: Annotated[
        int, described("Generation of the spec on which the status is based.", ge=0)
    ] = 0
    phase: Annotated[
        Phase,
        described("Upcoming: the next window has not begun. Active: it has. Ended: none follows."),
    ] = ""
    window_start: Annotated[Timestamp, described("Start of the current or next window.")] | None = (
        None
    )
    window_end: Annotated[Timestamp, described("End of that window.")] | None = None
    gpus: Annotated[str, described("Reserved GPUs.", max_length=32)] = ""
    used: Annotated[str, described("GPUs of jobs that name the reservation.", max_length=32)] = ""
    held: Annotated[str, described("GPUs held for such jobs now.", max_length=32)] = ""
    missing: Annotated[
        str,
        described(
            "GPUs of the window that are not there, even once all preempted jobs have ended. "
            "Before the window: that would be missing at its start.",
            max_length=32,
        ),
    ] = ""
    preempting: Annotated[
        int, described("Number of jobs that are being preempted for the window.", ge=0)
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "Accepted: the reservation stands; otherwise no GPU is held for it. Honored: the GPUs "
            "of the current or next window are there.",
            max_length=8,
            schema=BY_TYPE,
        ),
    ] = ()

    @property
    def problem(self) -> str:
        """Why it does not stand, or why GPUs of the window are missing; empty: neither is so."""
        return next((each.message for each in self.conditions if each.status == "False"), "")
