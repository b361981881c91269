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

    `used`: what its jobs have, or will have once their victims have ended. `held`: what is kept for
    them. `missing`: what it lacks, even once all `victims` have ended, which are being preempted
    for it or for its jobs. For a window that has not begun, `missing` is what would be lacking at
    its start as things are, all jobs preempted that may be.
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
        found.append(
            WindowReport(
                window,
                active,
                used_by_jobs(state, window),
                sum(milli_of(places) for _, places in holds.held(window)) if active else 0,
                holds.missing[window.reservation] if active else upcoming.missing_at(window),
                _running_victims(state, window),
            )
        )
    return found


def _running_victims(state: State, window: Window) -> tuple[JobId, ...]:
    """Return the jobs that end for the window, or for a job of it that will then start."""
    preemption = state.window_preemptions.get(window.reservation)
    found = [] if preemption is None else list(preemption.victims)
    for reserved in state.reserved.values():
        if window.admits(reserved.job):
            found += (job for job in reserved.victims if job not in found)
    return tuple(job for job in found if job in state.running)
