# SPDX-License-Identifier: Apache-2.0
"""How much energy each pod's GPUs took, from the drivers' counters at each scan.

What a GPU took between two scans goes to those who hold it at the second, by their parts of it:
the driver does not tell what each process takes. What it took while nobody held it is nobody's.
A pod of which nothing is known any more is forgotten; its last seconds may be missing. Of MIG
slices nothing is told: the counter is the whole GPU's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gpupack_agent.holders import annotated
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.pods import PodView


class PodEnergy:
    """Joules since this agent began, by the UIDs of pods; replaced as a whole."""

    def __init__(self) -> None:
        self.joules: Mapping[str, float] = {}
        self._counters: dict[str, float] = {}
        """Of each GPU, as last read."""

    def see(self, facts: Iterable[GpuFacts], pods: Iterable[PodView]) -> None:
        """A scan: what has been used since the last one."""
        known = tuple(pods)
        taken = self._taken(facts)
        shares = defaultdict[str, list[tuple[str, int]]](list)
        for pod in known:
            for share in () if pod.finished else annotated(pod):
                shares[share.uuid].append((pod.uid, share.percent))
        joules = {pod.uid: self.joules[pod.uid] for pod in known if pod.uid in self.joules}
        for uuid, used in taken.items():
            whole = sum(percent for _, percent in shares[uuid])
            for uid, percent in shares[uuid]:
                joules[uid] = joules.get(uid, 0.0) + used * percent / whole
        self.joules = joules

    def _taken(self, facts: Iterable[GpuFacts]) -> dict[str, float]:
        """By GPU; a counter that began anew, or was not read before, tells nothing yet."""
        read = {gpu.uuid: gpu.load.energy_joules for gpu in facts}
        counters = {uuid: joules for uuid, joules in read.items() if joules is not None}
        taken = {
            uuid: joules - self._counters[uuid]
            for uuid, joules in counters.items()
            if joules >= self._counters.get(uuid, float("inf"))
        }
        self._counters = counters
        return taken
