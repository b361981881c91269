# SPDX-License-Identifier: Apache-2.0
"""The resources that a pod takes of a node in addition to GPUs."""

import dataclasses
from collections.abc import Collection
from typing import Final, Self

from gpupack_crds import names
from gpupack_devices.units import NO_CPU, NO_MEMORY
from gpupack_placement import NO_AMOUNTS, Amounts, MiB, MilliCpu, Placement, Request

MAX_NAMES: Final = 32
"""Maximum number of extended resources that count for one pod; real pods have one or two."""

_NOT_EXTENDED: Final = frozenset({"cpu", "memory", "pods"})


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """CPU, memory, and everything else that is no GPU: RDMA devices, huge pages, local disk."""

    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    extended: Amounts = NO_AMOUNTS

    @classmethod
    def of(cls, held: Placement | Request) -> Self:
        """Return the resources of a placement or of a request."""
        return cls(held.cpu, held.memory, held.extended)

    def bounded(self) -> Self:
        """Return the resources with the first MAX_NAMES extended ones only.

        Only a pod that names resources which its node does not have can have more.
        """
        return dataclasses.replace(self, extended=self.extended[:MAX_NAMES])


NO_NEEDS: Final = Needs()


def is_extended(name: str, gpu_resources: Collection[str]) -> bool:
    """Tell whether a resource is counted by its name alone: it is no CPU, memory, pods or GPUs."""
    if name in _NOT_EXTENDED or name in gpu_resources:
        return False
    return not name.startswith(f"{names.GROUP}/")
