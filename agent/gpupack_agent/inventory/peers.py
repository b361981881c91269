# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of a node reach each other's memory, by the driver's matrix of peer-to-peer states.

Pairs are asked, not the far end of each link: behind NVSwitch the far end is the switch. The matrix
has as many entries as there are pairs, 2,016 of 64 GPUs, and changes with the GPUs and their links:
it is asked for anew when those do, and now and then, since links come up after the driver does.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpupack_agent.inventory.facts import GpuFacts

Reaches = Callable[[int, int], bool]

AGAIN_SECONDS: Final = 60.0

P2P_READ: Final = 0
"""NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py has as the tuple (0,): ctypes refuses that."""


class Peers:
    """Remembers the cliques of the GPUs that there were.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        now: monotonic seconds.
    """

    def __init__(self, nvml: Any, *, now: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._now = nvml, now
        self._known: Any = None
        """The GPUs and their links, as they were when the matrix was read."""
        self._read_at = 0.0
        self.nvlink: Mapping[int, int] = {}
        """By index, the clique over NVLink."""
        self.p2p: Mapping[int, int] = {}
        """By index, the clique over NVLink or PCIe."""

    def see(self, gpus: Mapping[int, tuple[Any, GpuFacts]]) -> None:
        """Bring the cliques up to date with these GPUs: NVML's handles and facts, by index."""
        known = tuple((index, gpu.uuid, gpu.links.nvlinks) for index, (_, gpu) in gpus.items())
        if known == self._known and self._now() - self._read_at < AGAIN_SECONDS:
            return

        def asks(capability: int) -> Reaches:
            return lambda low, high: self._is_ok(gpus[low][0], gpus[high][0], capability)

        indices = sorted(gpus)
        self.nvlink = connected(indices, asks(self._nvml.NVML_P2P_CAPS_INDEX_NVLINK))
        self.p2p = complete(indices, asks(P2P_READ))
        self._known, self._read_at = known, self._now()

    def _is_ok(self, first: Any, second: Any, capability: int) -> bool:
        try:
            status = self._nvml.nvmlDeviceGetP2PStatus(first, second, capability)
        except self._nvml.NVMLError:
            return False
        return bool(status == self._nvml.NVML_P2P_STATUS_OK)


def connected(indices: Sequence[int], linked: Reaches) -> dict[int, int]:
    """Group GPUs that reach each other over NVLink, by others where need be, by union-find.

    gpupack_core.cliques does the same for the client; to import it here would load numpy.

    Args:
        indices: the GPUs, in ascending order.
        linked: whether two of them reach each other.

    Returns:
        For each GPU with a peer the lowest index of its group; GPUs without one are left out.
    """
    parent = {index: index for index in indices}

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    grouped: set[int] = set()
    for position, low in enumerate(indices):
        for high in indices[position + 1 :]:
            if linked(low, high):
                first, second = sorted((root(low), root(high)))
                parent[second] = first
                grouped |= {low, high}
    return {index: root(index) for index in sorted(grouped)}


def complete(indices: Sequence[int], reaches: Reaches) -> dict[int, int]:
    """Group GPUs of which each reaches each: over PCIe nobody forwards for others.

    A GPU joins the first group all of whose members it reaches. As `connected` otherwise.
    """
    groups: list[list[int]] = []
    for index in indices:
        for group in groups:
            if all(reaches(member, index) for member in group):
                group.append(index)
                break
        else:
            groups.append([index])
    return {index: group[0] for group in groups if len(group) > 1 for index in group}
