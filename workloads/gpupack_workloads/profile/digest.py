# SPDX-License-Identifier: Apache-2.0
"""Figures of a trace: the largest consumers of time, and the share of communication.

The device is busy while anything runs on it. Communication that overlaps computation costs
little; exposed communication, without computation, is what better overlap could save.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpupack_workloads.profile.intervals import length, length_outside
from gpupack_workloads.profile.trace import Event, Trace
from gpupack_workloads.results import Scalar

COMMUNICATION = (
    "nccl",
    "nvshmem",
    "all_reduce",
    "allreduce",
    "multimem",
    "ptop",
    "gloo:",
    "c10d::",
)
"""What names of communication hold: kernels of libraries and ours, copies between GPUs."""
HOST_COPIES = ("Memcpy HtoD", "Memcpy DtoH")
MOVES = ("Memcpy", "Memset")
NAME_CHARACTERS = 120
"""Names of templates can be a thousand characters long."""


@dataclass(frozen=True)
class Total:
    """Total of all events with one name."""

    name: str
    calls: int
    total_us: float


@dataclass(frozen=True)
class Digest:
    """Figures of a trace.

    Attributes:
        of_gpu: whether it is a GPU's time.
        span_us: from first to last.
        busy_us: while anything ran; what overlaps counts once.
        communication_us: while any communication ran.
        exposed_us: while communication ran and nothing else.
        tops: by name, longest first.
    """

    of_gpu: bool
    span_us: float
    busy_us: float
    communication_us: float
    exposed_us: float
    tops: tuple[Total, ...]

    @property
    def total_us(self) -> float:
        """Time of all that ran, what overlaps counted each."""
        return sum(top.total_us for top in self.tops)

    def part(self, microseconds: float, of: float) -> float:
        """Return a share, 0 where nothing ran."""
        return round(microseconds / of, 4) if of else 0.0

    def metrics(self) -> dict[str, Scalar]:
        """Return the figures, with separate copies: checks often copy more than they compute."""
        copies = [top for top in self.tops if top.name.startswith(HOST_COPIES)]
        kernels = [top for top in self.tops if not top.name.startswith(MOVES)]
        return {
            "communication_ratio": self.part(self.communication_us, self.busy_us),
            "exposed_communication_ratio": self.part(self.exposed_us, self.busy_us),
            "busy_ratio": self.part(self.busy_us, self.span_us),
            "busy_seconds": round(self.busy_us / 1e6, 6),
            "span_seconds": round(self.span_us / 1e6, 6),
            "profiled_device": "gpu" if self.of_gpu else "cpu",
            "host_copy_ratio": self.part(sum(copy.total_us for copy in copies), self.total_us),
            "top_kernel": kernels[0].name[:NAME_CHARACTERS] if kernels else "",
            "top_kernel_ratio": self.part(kernels[0].total_us, self.total_us) if kernels else 0,
        }

    def rows(self, count: int) -> list[dict[str, Scalar]]:
        """Return what took most, one row each."""
        return [
            {
                "kernel": top.name[:NAME_CHARACTERS],
                "calls": top.calls,
                "total_us": round(top.total_us, 1),
                "mean_us": round(top.total_us / top.calls, 2),
                "time_ratio": self.part(top.total_us, self.total_us),
                "communication": is_communication(top.name),
            }
            for top in self.tops[:count]
        ]


def digest(trace: Trace) -> Digest:
    """Return where the time of a trace went."""
    communication = [event for event in trace.events if is_communication(event.name)]
    computation = [event for event in trace.events if not is_communication(event.name)]
    return Digest(
        of_gpu=trace.of_gpu,
        span_us=trace.span_us,
        busy_us=length(_times(trace.events)),
        communication_us=length(_times(communication)),
        exposed_us=length_outside(_times(communication), _times(computation)),
        tops=_tops(trace.events),
    )


def is_communication(name: str) -> bool:
    """Return whether an event of this name moves data between GPUs or processes."""
    return any(word in name.lower() for word in COMMUNICATION)


def table(rows: Sequence[dict[str, Scalar]]) -> str:
    """Return rows as text for people, longest first."""
    lines = [f"{'total ms':>12} {'share':>7} {'calls':>8} {'mean us':>11}  kernel"]
    lines += [
        f"{float(row['total_us']) / 1000:12.3f} {float(row['time_ratio']):7.1%} {row['calls']:>8}"
        f" {row['mean_us']:>11}  {row['kernel']}"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _times(events: Sequence[Event]) -> list[tuple[float, float]]:
    return [(event.start_us, event.end_us) for event in events]


def _tops(events: Sequence[Event]) -> tuple[Total, ...]:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event.self_us)
    tops = [Total(name, len(each), sum(each)) for name, each in times.items()]
    return tuple(sorted(tops, key=lambda top: (-top.total_us, top.name)))
