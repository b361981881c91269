# SPDX-License-Identifier: Apache-2.0
"""What if these quotas had held? The same jobs, once under today's and once under the proposed.

Both runs are made by the queue of the cluster (`fair-share`), with the same cluster, policy, seed
and failures; nothing differs but quotas and cohorts, and the rules of the queue where a file names
them. What a snapshot holds stays held by nobody's tenant: a snapshot does not say whose it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpupack_core import Cluster
from gpupack_simulator.experiments import Scripted
from gpupack_simulator.inputs.quotafile import QuotaFile
from gpupack_simulator.inputs.scenario import Scenario
from gpupack_simulator.inputs.snapshot import cluster_of
from gpupack_simulator.output.quotas import PROPOSED, TODAY, QuotaChange, change
from gpupack_simulator.record import Run

DISCIPLINE = "fair-share"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTrial:
    """`today` None: as the scenario says. `snapshot`: instead of the scenario's nodes."""

    scenario: Scenario
    proposed: QuotaFile
    today: QuotaFile | None = None
    snapshot: Mapping[str, Any] | None = None
    adopt: bool = False
    policy: str = "default"
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        """Before any job came."""
        if self.snapshot is None:
            return Cluster(self.scenario.nodes)
        return cluster_of(self.snapshot, adopt=self.adopt)

    def runs(self) -> tuple[Run, Run]:
        """Under today's quotas, and under the proposed."""
        return self._run(TODAY, self.today), self._run(PROPOSED, self.proposed)

    def compared(self, runs: tuple[Run, Run]) -> QuotaChange:
        """What would have changed."""
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
