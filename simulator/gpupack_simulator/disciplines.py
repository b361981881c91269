# SPDX-License-Identifier: Apache-2.0
"""The table of queue disciplines: rules of core's queue, under the names of the literature.

A new one is a line here. Nobody is told apart by tenant, and nobody is stopped for another, but in
`fair-share`, which is what the cluster does.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from gpupack_core.queueing import NEVER, Fifo, Rules
from gpupack_simulator.errors import InvalidParameter


class Known(StrEnum):
    """What the queue knows of how long jobs take."""

    EXACT = "exact"
    LEARNED = "learned"
    """From those of the same tenant and kind that ended, as in a cluster."""
    WALLTIME = "walltime"
    """What users said that jobs take at most; of a job whose user said nothing: nothing. A job
    that took longer counts with the time that it took, since a cluster would have ended it."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Discipline:
    """`keeps` False: nobody waits; a job that does not fit on arrival is refused."""

    name: str
    rules: Rules
    keeps: bool = True
    durations: Known = Known.EXACT


def _one_line(
    fifo: Fifo, *, by_priority: bool = False, keep_room_after: float = inf, kept: int = 1
) -> Rules:
    return Rules(
        by_priority=by_priority,
        by_share=False,
        fifo=fifo,
        keep_room_after=keep_room_after,
        kept=kept,
        preemption=NEVER,
    )


_ALL = (
    # The published experiment on the openb traces.
    Discipline("drop", _one_line(Fifo.BEST_EFFORT), keeps=False),
    # Strictly in the order of arrival; who does not fit holds up all behind. A job that was killed
    # keeps the place that its arrival gave it.
    Discipline("fifo", _one_line(Fifo.STRICT)),
    # In the order of arrival, passing over who does not fit. Nothing is kept for large jobs: on a
    # full cluster they wait as long as smaller ones keep coming.
    Discipline("fifo-skip", _one_line(Fifo.BEST_EFFORT)),
    # EASY: as fifo-skip, and nobody delays the first in line. Durations are
    # taken as exact where `durations` does not say otherwise.
    Discipline("backfill", _one_line(Fifo.BEST_EFFORT, keep_room_after=0.0)),
    # The same by what users said, as published results of EASY are.
    Discipline(
        "easy",
        _one_line(Fifo.BEST_EFFORT, keep_room_after=0.0),
        durations=Known.WALLTIME,
    ),
    # The largest priority first, otherwise as fifo; a job that runs is never stopped for another.
    Discipline("priority", _one_line(Fifo.STRICT, by_priority=True)),
    # Priority, then the tenant with the smallest share, then age; tenants give back what they
    # borrowed.
    Discipline("fair-share", Rules()),
)

DISCIPLINES: dict[str, Discipline] = {discipline.name: discipline for discipline in _ALL}


def discipline_named(name: str) -> Discipline:
    """The discipline, or an error that lists those that exist."""
    try:
        return DISCIPLINES[name]
    except KeyError:
        known = ", ".join(sorted(DISCIPLINES))
        raise InvalidParameter(f"there is no discipline {name!r}; use one of: {known}") from None
