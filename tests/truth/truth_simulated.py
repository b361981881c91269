# SPDX-License-Identifier: Apache-2.0
"""What the simulator decides, on a snapshot of the cluster's nodes."""

from collections.abc import Iterable, Sequence
from typing import Any

from truth_outcomes import Assignment, Outcomes

from gpupack_crds.devices import DeviceShare
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_placement import Cluster, Placement, Policy, load_forecast, policy_named, snapshot
from gpupack_scheduler.inventory import core_node
from gpupack_scheduler.ledger.ledger import TIE_SEED
from gpupack_scheduler.speeds import Speeds
from gpupack_simulator import Job, Sampling, Settings, Simulator

Json = dict[str, Any]


class InformedPolicy(Policy):
    """A policy with a fixed demand forecast, as in an extender that is configured with one."""

    def __init__(self, name: str, forecast: Json) -> None:
        self.name = name
        self._policy = policy_named(name).informed(load_forecast(forecast))
        self.prefers_fastest = self._policy.prefers_fastest

    def score(self, view, request, rows):
        return self._policy.score(view, request, rows)

    def share_column(self, view, request, row, columns):
        return self._policy.share_column(view, request, row, columns)


def snapshot_of(nodes: Iterable[objects.Node], gpu_nodes: Iterable[GpuNode]) -> Json:
    """The nodes that have GPUs, as the API shows them, empty."""
    gpus = {each.metadata.name: each for each in gpu_nodes}
    speeds = Speeds()
    for name, each in gpus.items():
        speeds.put(name, each)
    named = [(node.metadata.name, node) for node in nodes]
    joined = [
        core_node(node, gpus[name], (), speeds=speeds.of(name))
        for name, node in named
        if name in gpus
    ]
    return snapshot.dump(Cluster(joined, tie_seed=TIE_SEED))


def by_simulator(state: Json, jobs: Sequence[Job], policy: str, forecast: Json) -> Outcomes:
    """Simulate the jobs; a job that does not fit is dropped."""
    settings = Settings(discipline="drop", sampling=Sampling(), occupancy=False)
    informed = InformedPolicy(policy, forecast)
    run = Simulator(snapshot.load(state), jobs, informed, settings).run()
    return {each.job.id: _place(each.placements) for each in run.jobs}


def _place(placements: Sequence[Placement]) -> Assignment | None:
    if not placements:
        return None
    (placement,) = placements
    held = (
        DeviceShare(uuid=grant.uuid, percent=grant.milli // 10, memory_mib=grant.memory)
        for grant in placement.devices
    )
    return Assignment(placement.node, tuple(held))
