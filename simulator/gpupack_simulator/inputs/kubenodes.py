# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster, as `kubectl get nodes -o yaml` (or `-o json`) prints them.

Of each node the reader uses the name, the labels, and the allocatable resources. The number of its
GPUs is the largest amount among the resources below. Their model and memory come from the labels
that NVIDIA's and AMD's discovery write. GPUs that a device plugin shares by time-slicing or MPS
(`nvidia.com/gpu.replicas`) count as physical GPUs.

The official client's parser of quantities was rejected: the simulator runs without that library.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from gpupack_placement import Device, DeviceUuid, MiB, MilliCpu, Node, NodeName
from gpupack_simulator.inputs.compression import read_text
from gpupack_simulator.inputs.faults import Faults

RESOURCES: Final = ("gpupack.dev/gpu", "nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
MODEL_LABELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
MEMORY_LABELS: Final = ("nvidia.com/gpu.memory", "amd.com/gpu.vram")
REPLICAS: Final = "nvidia.com/gpu.replicas"
_SHARED: Final = "-SHARED"
_UNKNOWN_MEMORY: Final = MiB(80 * 1024)
_MAX_GPUS: Final = 1024
_BYTES_PER_MIB: Final = 1 << 20
_QUANTITY: Final = re.compile(
    r"(\d{1,19}(?:\.\d{1,9})?)(?:e(\d{1,2})|([numkMGTPE]i?|Ki)?)", re.ASCII
)
_WHOLE: Final = re.compile(r"\d{1,9}", re.ASCII)
_FACTORS: Final[dict[str | None, Decimal]] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class _Status(msgspec.Struct):
    allocatable: dict[str, str | int | float] = {}


class _Item(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item]


def read_kube_nodes(path: Path) -> tuple[Node, ...]:
    """Read the nodes of a list, in its order.

    Raises:
        InvalidInput: it is not a list of nodes, or a quantity is invalid.
    """
    faults = Faults(path)
    text = read_text(path, faults)
    decode = msgspec.json.decode if text.lstrip().startswith("{") else msgspec.yaml.decode
    try:
        items = decode(text, type=_List).items
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        message = f"is no list as `kubectl get nodes -o yaml` prints it: {error}"
        raise faults.fatal(message) from error
    nodes = [_node(item, f"items[{n}]", faults) for n, item in enumerate(items)]
    if not nodes:
        faults.add(0, "items", "there are no nodes")
    names = [node.name for node in nodes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        faults.add(0, "items", f"there are several nodes {name}")
    faults.check()
    return tuple(nodes)


def _node(item: _Item, path: str, faults: Faults) -> Node:
    if item.kind not in {"", "Node"}:
        faults.add(0, f"{path}.kind", f"is {item.kind}, not Node")
    labels, allocatable = item.metadata.labels, item.status.allocatable

    def amount(resource: str) -> Decimal:
        value = allocatable.get(resource, 0)
        found = _quantity(value)
        if found is None:
            where = f"{path}.status.allocatable.{resource}"
            faults.add(0, where, f"{value!r} is not a quantity such as 500m or 30Gi")
        return found or Decimal(0)

    gpus = max(int(amount(resource)) for resource in RESOURCES)
    replicas = max(_whole(labels.get(REPLICAS, "1")) or 1, 1)
    if gpus > _MAX_GPUS * replicas:
        faults.add(0, f"{path}.status.allocatable", f"{gpus} GPUs are more than {_MAX_GPUS}")
        gpus = 0
    name = item.metadata.name
    return Node(
        NodeName(name),
        tuple(_devices(name, gpus // replicas, labels)),
        MilliCpu(int(amount("cpu") * 1000)),
        MiB(int(amount("memory") / _BYTES_PER_MIB)),
        labels,
    )


def _devices(name: str, gpus: int, labels: dict[str, str]) -> list[Device]:
    model = next((labels[key] for key in MODEL_LABELS if labels.get(key)), "GPU")
    memory = next((_whole(labels[key]) for key in MEMORY_LABELS if labels.get(key)), None)
    mib = MiB(memory) if memory else _UNKNOWN_MEMORY
    model = model.removesuffix(_SHARED)
    return [Device(DeviceUuid(f"{name}-gpu-{index}"), index, model, mib) for index in range(gpus)]


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _quantity(value: Any) -> Decimal | None:
    """Return a Kubernetes quantity as a number; None: it is invalid."""
    found = _QUANTITY.fullmatch(str(value).strip())
    if found is None:
        return None
    number, exponent, unit = found.groups()
    if exponent:
        return Decimal(number) * Decimal(10) ** int(exponent)
    factor = _FACTORS.get(unit)
    return None if factor is None else Decimal(number) * factor
