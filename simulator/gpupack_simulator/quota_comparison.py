# SPDX-License-Identifier: Apache-2.0
"""What-if for quotas: the same jobs, once under today's and once under the proposed ones.

Both runs use the queue of the cluster (`fair-share`), with the same cluster, policy, seed and
failures. Only quotas and cohorts differ, and the rules of the queue if a file has them. What a
snapshot holds counts for no tenant: a snapshot does not name tenants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpupack_placement import Cluster
from gpupack_simulator.experiments import Scripted
from gpupack_simulator.inputs.quotafile import QuotaFile
from gpupack_simulator.inputs.scenario import Scenario
from gpupack_simulator.inputs.snapshot import cluster_of
from gpupack_simulator.output.quotas import PROPOSED, TODAY, QuotaChange, change
from gpupack_simulator.record import Run

DISCIPLINE = "fair-share"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaComparison:
    """A comparison of quotas.

    `today` None: those of the scenario. `snapshot`: replaces the scenario's nodes.
    """

    scenario: Scenario
    proposed: QuotaFile
    today: QuotaFile | None = None
    snapshot: Mapping[str, Any] | None = None
    adopt: bool = False
    policy: str = "default"
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        """Return the cluster before any job arrives."""
        if self.snapshot is None:
            return Cluster(self.scenario.nodes)
        return cluster_of(self.snapshot, adopt=self.adopt)

    def runs(self) -> tuple[Run, Run]:
        """Run under today's quotas, and under the proposed ones."""
        return self._run(TODAY, self.today), self._run(PROPOSED, self.proposed)

    def compared(self, runs: tuple[Run, Run]) -> QuotaChange:
        """Compare both runs."""
        start = self._scripted(self.proposed).simulator(self.policy, self.seed).sample()
        free = start.capacity_milli - start.allocated_milli
        return change(*runs, self.proposed.quotas, capacity=free)

    def _run(self, name: str, quotas: QuotaFile | None) -> Run:
        return replace(self._scripted(quotas).run(self.policy, self.seed), policy=name)

    def _scripted(self, quotas: QuotaFile | None) -> Scripted:
        scenario = replace(self.scenario, discipline=DISCIPLINE)
        if quotas is not None:
            queue = scenario.queue if quotas.queue is None else quotas.queue
            scenario = replace(scenario, quotas=quotas.quotas, queue=queue)
        return Scripted(scenario, self.parameters, self.snapshot, self.adopt)
