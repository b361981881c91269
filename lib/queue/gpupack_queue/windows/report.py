# SPDX-License-Identifier: Apache-2.0
"""What each window has and lacks, for statuses, metrics and questions."""

from dataclasses import dataclass

from gpupack_placement.cluster import Cluster
from gpupack_queue.job import JobId
from gpupack_queue.planning import Planner
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.window import Window
from gpupack_queue.windows.holds import WindowHolds, milli_of, used_by_jobs
from gpupack_queue.windows.upcoming import UpcomingWindows


@dataclass(frozen=True, slots=True)
class WindowReport:
    """One window; amounts in milli-GPU.

    `used`: what its jobs have, or have reserved as preemptors. `held`: what is kept for them.
    `missing`: what it lacks, even once all `victims`, which are being preempted for it, have ended.
    For a window that has not begun, `missing` is what would be lacking at its start as things are,
    all jobs preempted that may be.
    """

    window: Window
    is_active: bool
    used: int
    held: int
    missing: int
    victims: tuple[JobId, ...]


def window_reports(state: State, cluster: Cluster, plan: Planner, now: float) -> list[WindowReport]:
    """Return the reports of all windows that have not ended, in the order of their starts."""
    session = Session(cluster, state.reserved.values())
    holds = WindowHolds(state, session, plan, now)
    holds.place_all()
    upcoming = UpcomingWindows(state, session, plan, now)
    found = []
    for window in sorted(state.windows, key=lambda each: (each.start, each.reservation)):
        if window.end <= now:
            continue
        active = window.is_active(now)
        preemption = state.window_preemptions.get(window.reservation)
        found.append(
            WindowReport(
                window,
                active,
                used_by_jobs(state, window),
                sum(milli_of(places) for _, places in holds.held(window)) if active else 0,
                holds.missing[window.reservation] if active else upcoming.missing_at(window),
                tuple(job for job in preemption.victims if job in state.running)
                if preemption
                else (),
            )
        )
    return found
