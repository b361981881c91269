# SPDX-License-Identifier: Apache-2.0
"""What a pod takes of a node besides GPUs."""

import dataclasses
from collections.abc import Collection
from typing import Final, Self

import gpupack_core as core
from gpupack_core.units import NO_CPU, NO_MEMORY
from gpupack_crds import names

MAX_NAMES: Final = 32
"""Extended resources that one pod is counted by; real pods have one or two."""

_NOT_EXTENDED: Final = frozenset({"cpu", "memory", "pods"})


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """CPU, memory, and everything else that is no GPU: RDMA devices, huge pages, local disk."""

    cpu: core.MilliCpu = NO_CPU
    memory: core.MiB = NO_MEMORY
    extended: core.Amounts = core.NO_AMOUNTS

    @classmethod
    def of(cls, held: core.Placement | core.Request) -> Self:
        """What a placement has, or a request asks for."""
        return cls(held.cpu, held.memory, held.extended)

    def bounded(self) -> Self:
        """Without extended resources past the first MAX_NAMES.

        Only a pod that names what its node does not have can have as many.
        """
        return dataclasses.replace(self, extended=self.extended[:MAX_NAMES])


NO_NEEDS: Final = Needs()


def is_extended(name: str, gpu_resources: Collection[str]) -> bool:
    """Whether a resource is counted by its name alone: not by CPU, memory, pods or GPUs."""
    if name in _NOT_EXTENDED or name in gpu_resources:
        return False
    return not name.startswith(f"{names.GROUP}/")
