# SPDX-License-Identifier: Apache-2.0
"""The nearest miss: the part of a refused request that was too large."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gpupack_devices.units import MiB, MilliCpu, MilliGpu, memory_text
from gpupack_placement.request import Request

_CORE = 1000
_MILLI_PER_POINT = 10


class Resource(StrEnum):
    """The parts of a request that could be reduced; of equal reductions the first is named."""

    GPU_MEMORY = "gpuMemory"
    SHARE_MEMORY = "shareMemory"
    SHARE = "share"
    GPUS = "gpus"
    MIG_SLICES = "migSlices"
    CPU = "cpu"
    MEMORY = "memory"

    def of(self, request: Request) -> int:
        """Return the requested amount; 0: none, so there is nothing to reduce."""
        share, slices = request.share, request.slices
        return {
            Resource.GPU_MEMORY: request.min_memory if request.needs_gpu else 0,
            Resource.SHARE_MEMORY: share.memory if share else 0,
            Resource.SHARE: share.milli if share else 0,
            Resource.GPUS: request.gpus or 0,
            Resource.MIG_SLICES: slices.number if slices else 0,
            Resource.CPU: request.cpu,
            Resource.MEMORY: request.memory,
        }[self]

    def reduced(self, request: Request, amount: int) -> Request:
        """Return the request with this amount of the resource instead."""
        change: dict[str, Any] = {"gpus": amount}
        match self:
            case Resource.GPU_MEMORY:
                change = {"min_memory": MiB(amount)}
            case Resource.SHARE_MEMORY if request.share:
                change = {"share": replace(request.share, memory=MiB(amount))}
            case Resource.SHARE if request.share:
                change = {"share": replace(request.share, milli=MilliGpu(amount))}
            case Resource.MIG_SLICES if request.slices:
                change = {"slices": replace(request.slices, number=amount)}
            case Resource.CPU:
                change = {"cpu": MilliCpu(amount)}
            case Resource.MEMORY:
                change = {"memory": MiB(amount)}
        return replace(request, **change)

    def less(self, amount: int) -> str:
        """Return a text such as «12 GiB less GPU memory»."""
        match self:
            case Resource.GPU_MEMORY | Resource.SHARE_MEMORY:
                return f"{memory_text(amount)} less GPU memory"
            case Resource.SHARE:
                points = f"{amount / _MILLI_PER_POINT:g}"
                return f"{points} {'point' if points == '1' else 'points'} less"
            case Resource.GPUS:
                return f"{amount} {'GPU' if amount == 1 else 'GPUs'} less"
            case Resource.MIG_SLICES:
                return f"{amount} MIG {'slice' if amount == 1 else 'slices'} less"
            case Resource.CPU:
                return f"{_cores(amount)} less"
            case Resource.MEMORY:
                return f"{memory_text(amount)} less memory"


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """A number of nodes that would fit with less of a resource; 0 nodes: the gang would fit.

    `role`: the role of the gang whose workers request less; empty: it has one role.
    """

    resource: Resource
    less: int
    nodes: int = 0
    role: str = ""

    @property
    def text(self) -> str:
        """Text such as «3 nodes would fit with 12 GiB less GPU memory»."""
        if not self.nodes:
            of_role = f" of role {self.role}" if self.role else ""
            less = self.resource.less(self.less)
            return f"the gang would fit with {less} for each worker{of_role}"
        who = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{who} would fit with {self.resource.less(self.less)}"

    def applied(self, request: Request) -> Request:
        """Return the request that would have fitted."""
        return self.resource.reduced(request, self.resource.of(request) - self.less)


def _cores(milli: int) -> str:
    if milli % _CORE:
        return f"{milli} milli-CPU"
    return f"{milli // _CORE} {'core' if milli == _CORE else 'cores'}"
