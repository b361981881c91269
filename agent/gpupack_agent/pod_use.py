# SPDX-License-Identifier: Apache-2.0
"""What pods use of the GPUs that they hold, by what the driver told at each scan.

Energy: what a GPU took between two scans goes to those who hold it at the second, by their parts of
it, since the driver does not tell what each process takes. What it took while nobody held it is
nobody's. Memory: of all processes of a pod together, at the last scan. A pod of which nothing is
known any more is forgotten; its last seconds may be missing. Holders of MIG slices have those parts
of their GPU's energy that their slices are of all that are held.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpupack_agent.cgroups import pod_of
from gpupack_agent.holders import annotated
from gpupack_agent.inventory.facts import GpuFacts, SliceFacts
from gpupack_agent.pods import PodView
from gpupack_crds.gpunode import GpuDevice


class PodUse:
    """By the UIDs of pods; figures are replaced as a whole.

    Args:
        pod_of: the UID of a process' pod; None: it is of none.

    Attributes:
        joules: since this agent began.
        memory_bytes: by the UUID of the GPU or slice, too; of pods that the driver names processes
            of.
    """

    def __init__(self, pod_of: Callable[[int], str | None] = pod_of) -> None:
        self.joules: Mapping[str, float] = {}
        self.memory_bytes: Mapping[tuple[str, str], int] = {}
        self._pod_of = pod_of
        self._counters: dict[str, float] = {}
        """Of each GPU, as last read."""

    def see(
        self,
        facts: Sequence[GpuFacts],
        pods: Iterable[PodView],
        devices: Iterable[GpuDevice] = (),
    ) -> None:
        """A scan; of devices MIG slices matter alone."""
        known = tuple(pods)
        slices = {each.uuid: each for each in devices if each.mig_parent}
        self.joules = self._joules(facts, slices, known)
        self.memory_bytes = self._memory(facts, {pod.uid for pod in known})

    def unseen(self) -> None:
        """No scan has succeeded for a while: who has how much memory nobody knows."""
        self.memory_bytes = {}

    def _joules(
        self,
        facts: Iterable[GpuFacts],
        slices: Mapping[str, GpuDevice],
        known: Sequence[PodView],
    ) -> dict[str, float]:
        taken = self._taken(facts)
        shares = defaultdict[str, list[tuple[str, int]]](list)
        for pod in known:
            for share in () if pod.finished else annotated(pod):
                cut = slices.get(share.uuid)
                gpu, part = (cut.mig_parent, cut.mig_size or 1) if cut else (share.uuid, 1)
                shares[gpu].append((pod.uid, share.percent * part))
        joules = {pod.uid: self.joules[pod.uid] for pod in known if pod.uid in self.joules}
        for uuid, used in taken.items():
            whole = sum(part for _, part in shares[uuid])
            for uid, part in shares[uuid]:
                joules[uid] = joules.get(uid, 0.0) + used * part / whole
        # From its first scan on a pod's counter is there, so that all it takes is an increase.
        metered = (uid for uuid in self._counters for uid, _ in shares[uuid])
        return dict.fromkeys(metered, 0.0) | joules

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

    def _memory(self, facts: Iterable[GpuFacts], known: set[str]) -> dict[tuple[str, str], int]:
        """Processes beyond the node's pods, as those of the host, are nobody's."""
        used = Counter[tuple[str, str]]()
        held: Iterable[GpuFacts | SliceFacts] = itertools.chain.from_iterable(
            gpu.slices or (gpu,) for gpu in facts
        )
        for each in held:
            for process in each.processes:
                uid = self._pod_of(process.pid)
                if uid in known and process.memory_bytes is not None:
                    used[each.uuid, uid] += process.memory_bytes
        return dict(used)
