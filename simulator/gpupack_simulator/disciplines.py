# SPDX-License-Identifier: Apache-2.0
"""The table of queue disciplines: rules of the queue, under the names of the literature.

A new discipline is a line here. Only `fair-share` distinguishes tenants and preempts jobs; it is
the discipline of the cluster.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from gpupack_queue import NO_PREEMPTION, OrderPolicy, Rules
from gpupack_simulator.errors import InvalidParameter


class KnownDurations(StrEnum):
    """The queue's knowledge of the durations of jobs."""

    EXACT = "exact"
    LEARNED = "learned"
    """Learned from ended jobs of the same tenant and kind, as in a cluster."""
    WALLTIME = "walltime"
    """Limits that users set; a job without a limit has no known duration. A job that took longer
    than its limit counts with its real duration, since a cluster would have ended it."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Discipline:
    """A queue discipline.

    `keeps` False: no job waits; a job that does not fit on arrival is refused.
    """

    name: str
    rules: Rules
    keeps: bool = True
    durations: KnownDurations = KnownDurations.EXACT


def _first_in_first_out(
    fifo: OrderPolicy, *, by_priority: bool = False, reserve_after: float = inf, kept: int = 1
) -> Rules:
    return Rules(
        by_priority=by_priority,
        by_share=False,
        order=fifo,
        reserve_after_seconds=reserve_after,
        max_reservations=kept,
        preemption=NO_PREEMPTION,
    )


_ALL = (
    # The published experiment on the openb traces.
    Discipline("drop", _first_in_first_out(OrderPolicy.BEST_EFFORT), keeps=False),
    # Strictly in the order of arrival; a job that does not fit blocks all later ones. A killed job
    # keeps the place of its arrival.
    Discipline("fifo", _first_in_first_out(OrderPolicy.STRICT)),
    # In the order of arrival; jobs that do not fit are skipped. Nothing is reserved for large jobs:
    # on a full cluster they wait as long as smaller ones keep coming.
    Discipline("fifo-skip", _first_in_first_out(OrderPolicy.BEST_EFFORT)),
    # EASY: as fifo-skip, and no job delays the queue head. Durations are
    # exact unless `durations` says otherwise.
    Discipline("backfill", _first_in_first_out(OrderPolicy.BEST_EFFORT, reserve_after=0.0)),
    # EASY with the users' limits as durations, as in published results.
    Discipline(
        "easy",
        _first_in_first_out(OrderPolicy.BEST_EFFORT, reserve_after=0.0),
        durations=KnownDurations.WALLTIME,
    ),
    # The largest priority first, otherwise as fifo; a running job is never preempted.
    Discipline("priority", _first_in_first_out(OrderPolicy.STRICT, by_priority=True)),
    # Priority, then the tenant with the smallest share, then age; tenants give back what they
    # borrowed.
    Discipline("fair-share", Rules()),
)

DISCIPLINES: dict[str, Discipline] = {discipline.name: discipline for discipline in _ALL}


def discipline_named(name: str) -> Discipline:
    """Return the discipline, or raise an error that lists the valid names."""
    try:
        return DISCIPLINES[name]
    except KeyError:
        known = ", ".join(sorted(DISCIPLINES))
        raise InvalidParameter(f"there is no discipline {name!r}; use one of: {known}") from None
