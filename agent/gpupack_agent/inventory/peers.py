# SPDX-License-Identifier: Apache-2.0
"""Groups of a node's GPUs that reach each other's memory, from the driver's peer-to-peer matrix.

The driver is queried for pairs and not for the far end of each link, because behind NVSwitch the
far end is the switch. The matrix has one entry for each pair, 2,016 for 64 GPUs, and changes with
the GPUs and their links. It is read again when these change, and from time to time, because links
come up after the driver does.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpupack_agent.inventory.facts import GpuFacts
from gpupack_devices.cliques import Reaches, connected_groups

REFRESH_SECONDS: Final = 60.0

P2P_READ: Final = 0
"""NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py has as the tuple (0,): ctypes refuses that."""


class Peers:
    """The cliques of the GPUs, cached.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        now: returns monotonic seconds.
    """

    def __init__(self, nvml: Any, *, now: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._now = nvml, now
        self._read_for: Any = None
        """The GPUs and their links at the time when the matrix was read."""
        self._read_at = 0.0
        self.nvlink: Mapping[int, int] = {}
        """The clique over NVLink of each GPU, by index."""
        self.p2p: Mapping[int, int] = {}
        """The clique over NVLink or PCIe of each GPU, by index."""

    def update(self, gpus: Mapping[int, tuple[Any, GpuFacts]]) -> None:
        """Update the cliques for these GPUs: NVML's handles and facts, by index."""
        known = tuple((index, gpu.uuid, gpu.links.nvlinks) for index, (_, gpu) in gpus.items())
        if known == self._read_for and self._now() - self._read_at < REFRESH_SECONDS:
            return

        def reaches(capability: int) -> Reaches:
            return lambda low, high: self._is_ok(gpus[low][0], gpus[high][0], capability)

        indices = sorted(gpus)
        self.nvlink = connected_groups(indices, reaches(self._nvml.NVML_P2P_CAPS_INDEX_NVLINK))
        self.p2p = complete_groups(indices, reaches(P2P_READ))
        self._read_for, self._read_at = known, self._now()

    def _is_ok(self, first: Any, second: Any, capability: int) -> bool:
        try:
            status = self._nvml.nvmlDeviceGetP2PStatus(first, second, capability)
        except self._nvml.NVMLError:
            return False
        return bool(status == self._nvml.NVML_P2P_STATUS_OK)


def complete_groups(indices: Sequence[int], reaches: Reaches) -> dict[int, int]:
    """Group GPUs so that all members reach each other: over PCIe no GPU forwards for others.

    A GPU joins the first group of which it reaches all members.

    Args:
        indices: the GPUs, in ascending order.
        reaches: tells whether two of them reach each other.

    Returns:
        The lowest index of its group for each GPU with a peer; GPUs without one are left out.
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
