# SPDX-License-Identifier: Apache-2.0
"""The use of GPUs by the pods that hold them, from the driver's figures at each scan.

Energy: the energy of a GPU between two scans is divided among the pods that hold it at the second
scan, in proportion to their shares, because the driver does not show the energy of each process.
Energy without a holder is assigned to no pod. The energy of a GPU with MIG slices is divided in
proportion to the sizes of the held slices. Memory: the sum over all processes of a pod, at the last
scan. A pod that the agent no longer knows is forgotten; its last seconds may be missing.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpupack_agent.cgroups import pod_of
from gpupack_agent.holders import annotated_devices
from gpupack_agent.inventory.facts import GpuFacts, SliceFacts
from gpupack_agent.pods import PodView
from gpupack_crds.gpunode import GpuDevice


class PodUse:
    """The use of GPUs by pod; the figures are replaced as a whole.

    Args:
        pod_of: returns the UID of a process's pod; None: the process belongs to no pod.

    Attributes:
        joules: energy since this agent started, by the pod's UID.
        memory_bytes: memory of the pods whose processes the driver lists, by the UUID of the GPU or
            slice and the pod's UID.
    """

    def __init__(self, pod_of: Callable[[int], str | None] = pod_of) -> None:
        self.joules: Mapping[str, float] = {}
        self.memory_bytes: Mapping[tuple[str, str], int] = {}
        self._pod_of = pod_of
        self._counters: dict[str, float] = {}
        """The energy counter of each GPU as last read, in joules, by UUID."""

    def update(
        self,
        facts: Sequence[GpuFacts],
        pods: Iterable[PodView],
        devices: Iterable[GpuDevice] = (),
    ) -> None:
        """Apply a scan; of `devices` only the MIG slices matter."""
        known = tuple(pods)
        slices = {each.uuid: each for each in devices if each.mig_parent}
        self.joules = self._joules(facts, slices, known)
        self.memory_bytes = self._memory(facts, {pod.uid for pod in known})

    def forget_memory(self) -> None:
        """Drop the figures of memory, which are unknown when no scan has succeeded for a while."""
        self.memory_bytes = {}

    def _joules(
        self,
        facts: Iterable[GpuFacts],
        slices: Mapping[str, GpuDevice],
        known: Sequence[PodView],
    ) -> dict[str, float]:
        taken = self._energy_since_last_scan(facts)
        shares = defaultdict[str, list[tuple[str, int]]](list)
        for pod in known:
            for share in () if pod.finished else annotated_devices(pod):
                cut = slices.get(share.uuid)
                gpu, part = (cut.mig_parent, cut.mig_size or 1) if cut else (share.uuid, 1)
                shares[gpu].append((pod.uid, share.percent * part))
        joules = {pod.uid: self.joules[pod.uid] for pod in known if pod.uid in self.joules}
        for uuid, used in taken.items():
            whole = sum(part for _, part in shares[uuid])
            for uid, part in shares[uuid]:
                joules[uid] = joules.get(uid, 0.0) + used * part / whole
        # A pod's counter exists from its first scan, so that all of its energy is an increase.
        metered = (uid for uuid in self._counters for uid, _ in shares[uuid])
        return dict.fromkeys(metered, 0.0) | joules

    def _energy_since_last_scan(self, facts: Iterable[GpuFacts]) -> dict[str, float]:
        """Return each GPU's energy since the last scan, in joules.

        GPUs whose counter was reset, or was not read before, are left out.
        """
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
        """Sum up memory by GPU or slice and pod; processes outside the node's pods are left out."""
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
