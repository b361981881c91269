# SPDX-License-Identifier: Apache-2.0
"""What is asked for: one worker's request, and a gang of identical workers."""

from dataclasses import dataclass
from enum import StrEnum

from gpupack_core.errors import InvalidRequest
from gpupack_core.selector import NodeSelector, Toleration
from gpupack_core.units import NO_CPU, NO_MEMORY, WHOLE_GPU, MiB, MilliCpu, MilliGpu


class Interconnect(StrEnum):
    """How the GPUs of one worker must be linked."""

    ANY = "any"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU. `memory` 0: unknown, as in traces that do not record it."""

    milli: MilliGpu
    memory: MiB

    def __post_init__(self) -> None:
        if not 0 < self.milli < WHOLE_GPU:
            raise InvalidRequest(f"a share is 1 to 999 milli-GPU, not {self.milli}")
        if self.memory < 0:
            raise InvalidRequest(f"a share's memory cannot be {self.memory} MiB")


@dataclass(frozen=True, slots=True)
class Request:
    """One worker: whole GPUs (0: a CPU-only pod) or a share of one, never both.

    `models` empty: any; otherwise each GPU must match one of them (models.matches_model).
    `min_memory` asks for devices of at least this capacity. NVLINK: all GPUs of the worker in
    one clique; one GPU needs no link. `cpu` and `memory` are the pod's requests. `resource`: the
    name by which GPUs are asked for, as of model.Node.
    """

    gpus: int | None = None
    share: Share | None = None
    models: tuple[str, ...] = ()
    min_memory: MiB = NO_MEMORY
    interconnect: Interconnect = Interconnect.ANY
    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    selector: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    resource: str = ""

    def __post_init__(self) -> None:
        if (self.gpus is None) == (self.share is None):
            raise InvalidRequest("ask for exactly one of gpus and share")
        if self.gpus is not None and self.gpus < 0:
            raise InvalidRequest(f"gpus is {self.gpus}; ask for 0 or more")
        if min(self.cpu, self.memory, self.min_memory) < 0:
            raise InvalidRequest("cpu, memory and min_memory must not be negative")
        if not all(model.strip() for model in self.models):
            raise InvalidRequest("a model name is empty")

    @property
    def needs_gpu(self) -> bool:
        """False for a CPU-only pod."""
        return self.share is not None or bool(self.gpus)

    @property
    def needs_clique(self) -> bool:
        """Whether all GPUs must come from one NVLink clique."""
        return self.interconnect is Interconnect.NVLINK and (self.gpus or 0) > 1

    @property
    def milli(self) -> MilliGpu:
        """GPU capacity asked for, over all devices."""
        return self.share.milli if self.share else MilliGpu((self.gpus or 0) * WHOLE_GPU)


@dataclass(frozen=True, slots=True)
class Spread:
    """`max_nodes`: a gang touches at most so many nodes; None: any number."""

    max_nodes: int | None = None
    one_worker_per_node: bool = False

    def __post_init__(self) -> None:
        if self.max_nodes is not None and self.max_nodes < 1:
            raise InvalidRequest(f"max_nodes is {self.max_nodes}; ask for 1 or more")


@dataclass(frozen=True, slots=True)
class Gang:
    """Identical workers, placed together or not at all."""

    workers: int
    request: Request
    spread: Spread = Spread()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidRequest(f"workers is {self.workers}; ask for 1 or more")
        nodes = self.spread.max_nodes
        if self.spread.one_worker_per_node and nodes is not None and nodes < self.workers:
            raise InvalidRequest(
                f"{self.workers} workers on different nodes need max_nodes of at least "
                f"{self.workers}, not {nodes}"
            )
