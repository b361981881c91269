# SPDX-License-Identifier: Apache-2.0
"""Where the workers of an attempt run: by node in the API, by worker in programs.

    placement:
    - node: gpu-1
      workers: 0-1,3
      gpus: [GPU-5a…, GPU-1c…, GPU-77…]
      memoryMiB: [81559]

There is one entry for each node, so that a gang of 1,024 workers and 4,096 GPUs stays well within
etcd's limit for an object. UUIDs identify the GPUs, since an index is not stable.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated

from gpupack_crds import indices
from gpupack_crds.devices import MAX_UUID, WHOLE_PERCENT, DeviceShare, HeldIsolation
from gpupack_crds.gpujob import MAX_GPUS
from gpupack_crds.wire import Wire, described


class NodePlacement(Wire, frozen=True):
    """The workers of an attempt that run on one node: decided once, held until the attempt ends."""

    node: Annotated[str, described("Name of the node.", min_length=1, max_length=253)]
    workers: Annotated[
        str,
        described(
            "Indices of the workers there, such as 0-3,6.",
            pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$",
            max_length=indices.MAX_CHARACTERS,
        ),
    ] = ""
    gpus: Annotated[
        tuple[Annotated[str, described("A GPU's UUID.", min_length=1, max_length=MAX_UUID)], ...],
        described(
            "UUIDs of their GPUs: as many for each worker, in the order of the workers. Empty "
            "where another device plugin chooses them.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    percent: Annotated[
        int, described("Percent of each GPU's compute; 100 is the whole GPU.", ge=1, le=100)
    ] = WHOLE_PERCENT
    memory_mib: Annotated[
        tuple[Annotated[int, described("In MiB.", ge=1, schema={"format": "int64"})], ...],
        described(
            "Memory of each GPU in MiB, in the order of gpus; one figure where all have as much.",
            max_length=MAX_GPUS,
        ),
    ] = ()
    isolation: HeldIsolation = "cooperative"
    exclusive_to_namespace: Annotated[
        str,
        described(
            "The only namespace whose shares may be on these GPUs. Absent: any namespace.",
            max_length=63,
        ),
    ] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerPlacement:
    """The place of one worker.

    Attributes:
        worker: index of the worker.
        node: name of its node.
        devices: its GPUs there; empty where another device plugin chooses them.
    """

    worker: int
    node: str
    devices: tuple[DeviceShare, ...] = ()


def by_node(workers: Iterable[WorkerPlacement]) -> tuple[NodePlacement, ...]:
    """Return the placement by node, in the order of the nodes' first workers."""
    found: dict[tuple[str, int, int], list[WorkerPlacement]] = {}
    for each in sorted(workers, key=lambda each: each.worker):
        percent = each.devices[0].percent if each.devices else WHOLE_PERCENT
        found.setdefault((each.node, percent, len(each.devices)), []).append(each)
    return tuple(_entry(node, percent, some) for (node, percent, _), some in found.items())


def by_worker(placement: Iterable[NodePlacement]) -> tuple[WorkerPlacement, ...]:
    """Return the placement by worker, in the order of the workers.

    It never fails, since GPUs of an unread entry would be given to others. Indices beyond any
    gang's are left out, and GPUs that cannot be split evenly go to the last worker. An entry
    without workers claims nothing: an earlier version wrote other fields, which the API server
    prunes.
    """
    found = [worker for entry in placement for worker in _workers(entry)]
    return tuple(sorted(found, key=lambda each: each.worker))


def nodes_of(placement: Iterable[NodePlacement]) -> tuple[str, ...]:
    """Return the nodes, each once."""
    return tuple(dict.fromkeys(entry.node for entry in placement))


def _entry(node: str, percent: int, workers: list[WorkerPlacement]) -> NodePlacement:
    devices = [device for each in workers for device in each.devices]
    memory = tuple(device.memory_mib for device in devices)
    return NodePlacement(
        node=node,
        workers=indices.written([each.worker for each in workers]),
        gpus=tuple(device.uuid for device in devices),
        percent=percent,
        memory_mib=memory[:1] if len(set(memory)) == 1 else memory,
        isolation=devices[0].isolation if devices else "cooperative",
        exclusive_to_namespace=devices[0].exclusive_to_namespace if devices else "",
    )


def _workers(entry: NodePlacement) -> Iterator[WorkerPlacement]:
    workers = indices.read(entry.workers)
    memory = entry.memory_mib * (len(entry.gpus) if len(entry.memory_mib) == 1 else 1)
    memory += (1,) * (len(entry.gpus) - len(memory))
    devices = [
        DeviceShare(
            uuid=uuid,
            percent=entry.percent,
            memory_mib=each,
            isolation=entry.isolation,
            exclusive_to_namespace=entry.exclusive_to_namespace,
        )
        for uuid, each in zip(entry.gpus, memory, strict=False)
    ]
    share = len(devices) // len(workers) if workers else 0
    for place, index in enumerate(workers):
        end = None if place == len(workers) - 1 else (place + 1) * share
        yield WorkerPlacement(index, entry.node, tuple(devices[place * share : end]))
