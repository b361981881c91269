# SPDX-License-Identifier: Apache-2.0
"""The nodes on which cluster and simulator are compared: a dozen shapes, so many times each.

One, two, four and eight GPUs; one NVLink clique, several, none; NUMA nodes across cliques; nodes
with more CPU than their GPUs need and with less; two models in one node; sick GPUs. Every third GPU
was measured to be slower than others of its model.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from gpupack_crds import names

Manifest = dict[str, Any]

POOL = "truth.gpupack.dev/pool"
"""A label: jobs can ask for a pool of nodes."""
KWOK_TAINT = "kwok.x-k8s.io/node"
KWOK_LABELS = {"type": "kwok"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpus:
    """So many GPUs of one model; `cliques` and `numa_nodes` of equal size, 0: not known."""

    model: str
    memory_mib: int
    number: int
    cliques: int = 0
    numa_nodes: int = 0
    health: tuple[str, ...] = ()
    """Of the first GPUs; the others are Healthy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of node."""

    pool: str
    cpu: int
    memory_gib: int
    gpus: tuple[Gpus, ...]

    @property
    def number(self) -> int:
        """Of GPUs."""
        return sum(each.number for each in self.gpus)


H100 = Gpus(model="NVIDIA H100 80GB HBM3", memory_mib=81559, number=8, cliques=1, numa_nodes=2)
A100 = Gpus(model="NVIDIA A100-SXM4-40GB", memory_mib=40960, number=8, cliques=2, numa_nodes=4)
V100 = Gpus(model="Tesla V100-SXM2-16GB", memory_mib=16160, number=4, cliques=2, numa_nodes=1)
T4 = Gpus(model="Tesla T4", memory_mib=15360, number=2)
L40S = Gpus(model="NVIDIA L40S", memory_mib=46068, number=1)
A30 = Gpus(model="NVIDIA A30", memory_mib=24576, number=2, cliques=1)

SHAPES = (
    Shape(pool="large", cpu=96, memory_gib=1024, gpus=(H100,)),
    Shape(pool="large", cpu=48, memory_gib=512, gpus=(H100,)),
    Shape(pool="large", cpu=128, memory_gib=768, gpus=(A100,)),
    Shape(
        pool="large",
        cpu=64,
        memory_gib=256,
        gpus=(dataclasses.replace(A100, health=("Failed", "Degraded")),),
    ),
    Shape(pool="medium", cpu=32, memory_gib=244, gpus=(V100,)),
    Shape(pool="medium", cpu=24, memory_gib=122, gpus=(dataclasses.replace(V100, cliques=1),)),
    Shape(pool="medium", cpu=32, memory_gib=128, gpus=(A30, T4)),
    Shape(pool="medium", cpu=64, memory_gib=64, gpus=(dataclasses.replace(T4, number=4),)),
    Shape(pool="small", cpu=32, memory_gib=128, gpus=(T4,)),
    Shape(pool="small", cpu=8, memory_gib=32, gpus=(T4,)),
    Shape(pool="small", cpu=16, memory_gib=64, gpus=(L40S,)),
    Shape(pool="small", cpu=12, memory_gib=96, gpus=(dataclasses.replace(L40S, number=2),)),
)


def fleet(copies: int) -> dict[str, Shape]:
    """Shapes by the names that the cluster's simulated nodes have."""
    return {f"kwok-{index + 1}": shape for index, shape in enumerate(SHAPES * copies)}


def node_metadata(shape: Shape) -> Manifest:
    """A patch of a simulated node."""
    return {"metadata": {"labels": {POOL: shape.pool}}}


def node_status(shape: Shape) -> Manifest:
    """A patch of a simulated node's status: what its kubelet would let pods have."""
    resources = {
        "cpu": str(shape.cpu),
        "memory": f"{shape.memory_gib}Gi",
        "pods": "500",
        names.GPU: str(shape.number),
        names.GPU_SHARE: str(shape.number * names.SHARE_SLOTS_PER_GPU),
    }
    return {"status": {"capacity": resources, "allocatable": resources}}


def gpu_node(name: str, shape: Shape) -> Manifest:
    """The inventory that an agent would write."""
    devices = [
        {"uuid": f"GPU-{name}-{index}", "index": index, "simulated": True, **device}
        for index, device in enumerate(_devices(shape))
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "mode": "owned",
            "devices": devices,
            "measured": [_measured(each) for each in devices],
            "simulated": True,
        },
    }


def _measured(device: Manifest) -> Manifest:
    """A third of the GPUs is 10 % slower: the median is that of the others in any order."""
    return {
        "gpu": device["uuid"],
        "at": "2026-11-01T00:00:00Z",
        "outcome": "Passed",
        "tflops": 90.0 if device["index"] % 3 == 1 else 100.0,
        "simulated": True,
    }


def _devices(shape: Shape) -> Iterator[Manifest]:
    """Cliques are numbered through the node."""
    clique_offset = 0
    for gpus in shape.gpus:
        for number in range(gpus.number):
            device: Manifest = {"model": gpus.model, "memoryMiB": gpus.memory_mib}
            if gpus.cliques:
                clique = clique_offset + number * gpus.cliques // gpus.number
                device["nvlinkClique"] = clique
            if gpus.numa_nodes:
                device["numaNode"] = number * gpus.numa_nodes // gpus.number
            if number < len(gpus.health):
                device |= {"health": gpus.health[number], "cause": "made sick by the test"}
            yield device
        clique_offset += gpus.cliques
