# SPDX-License-Identifier: Apache-2.0
"""One pass over the pending jobs: which start now, which preempt, which wait.

    windows that are active ─► their jobs ─► Admit; other jobs in the way ─► PreemptForWindow
    jobs with reserved places ─► movable jobs on devices to drain: do they fit elsewhere? ─► Move
                              ─► the other jobs in order: priority, share, age
                                    │ fits the quota and the cluster ──────────► Admit
                                    │ fits once other jobs are preempted ──────► Preempt
                                    │ has waited long enough ──────────────────► reservation
                                    │  and movable jobs can run elsewhere ─────► Consolidate
                                    ├ can never start: it holds no job back
                                    └ otherwise it waits; in strict order, jobs behind it that
                                      compete with it, too
                              ─► elastic gangs: GPUs that no pending job can use ─► Admit

Each line is an action (actions/). A cycle changes no job, no place and no quota. It stores backfill
reservations, failures, and the times of searches.
"""

from gpupack_placement.cluster import Cluster
from gpupack_queue.cycle.actions import ACTIONS
from gpupack_queue.cycle.context import CycleContext, Restrictions
from gpupack_queue.decisions import Decisions
from gpupack_queue.planning import Planner
from gpupack_queue.state.queue_state import State


def run_cycle(
    state: State, cluster: Cluster, plan: Planner, now: float, restrictions: Restrictions
) -> Decisions:
    """Return all decisions that can be made now."""
    cycle = CycleContext(state, cluster, plan, now, restrictions)
    try:
        for action in ACTIONS:
            action.run(cycle)
    finally:
        cycle.discard_counts()
    cycle.reservations.save(complete=cycle.is_complete)
    cycle.look_again(state.fallbacks.next_step)
    state.computes_reservations_next = cycle.has_searched and cycle.reservations.is_postponed
    return cycle.decisions()
