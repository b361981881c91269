# SPDX-License-Identifier: Apache-2.0
"""Movable jobs leave devices that are to be drained."""

from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.moves.planner import MovePlanner


class MoveOffDevices:
    """Moves jobs off devices to drain."""

    def run(self, cycle: CycleContext, /) -> None:
        """Move jobs off devices to drain, before pending jobs: they were admitted earlier."""
        if not cycle.restrictions.preempt:
            return
        planner = MovePlanner(cycle.state, cycle.session, cycle.planner, cycle.plan, cycle.now)
        candidates = planner.candidates()
        if not candidates:
            return
        planner.respect_reservations()
        for running in candidates:
            tenant, charge = running.job.tenant, running.charge
            cycle.count(tenant, charge, -1)
            cycle.quota.held.add(tenant, charge, sign=-1)
            moved = planner.plan(running)
            cycle.quota.held.add(tenant, charge)
            if moved is None:
                cycle.count(tenant, charge, 1)
                continue
            cycle.count(tenant, moved.charge, 1)
            cycle.session.hold(running.job, moved.decision.placements)
            cycle.moves.append(moved.decision)
            cycle.reservations.record_move()
            planner.record_move()
        planner.save_reservations()
        cycle.look_again(planner.due_at)
