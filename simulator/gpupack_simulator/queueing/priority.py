# SPDX-License-Identifier: Apache-2.0
"""Discipline `priority`: the largest priority first, among equals in the order of arrival.

There is no preemption: a job that runs is never stopped for another. Nobody overtakes: who is
first and does not fit holds up all behind, so that a large urgent job is not starved by small ones.
"""

from gpupack_simulator.job import Job
from gpupack_simulator.queueing.fifo import Fifo
from gpupack_simulator.queueing.waiting import Rank


class Priority(Fifo):
    """Head of line in another order."""

    name = "priority"

    def rank(self, job: Job, sequence: int) -> Rank:
        """By priority, then by arrival."""
        return (-job.priority, sequence)
