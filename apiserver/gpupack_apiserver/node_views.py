# SPDX-License-Identifier: Apache-2.0
"""Nodes with GPUs in the form of answers; each is computed again only after a change."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from gpupack.training_config import gigabytes
from gpupack_apiserver.readings.reading import NOT_READ, NOTHING, Reading
from gpupack_placement import WHOLE_GPU, Cluster, Device, Node
from gpupack_placement.arrays import ABSENT, Arrays
from gpupack_placement.free_blocks import fragmented_fraction
from gpupack_restapi.nodes import DeviceView, NodeView

PERCENT: Final = 100.0


class Totals(msgspec.Struct, frozen=True):
    """Figures of all nodes; the allocated part of GPUs and of their memory in percent.

    `fragmentation`: see `fragmentation` below.
    """

    nodes: int = 0
    gpus: int = 0
    available_gpus: int = 0
    gpu_utilization: float = 0.0
    gpu_memory_usage: float = 0.0
    fragmentation: float = 0.0


class NodeSource(Protocol):
    """A source of nodes: the cluster's ledger, or that of one machine."""

    @property
    def cluster(self) -> Cluster:
        """The nodes, with what is held of them."""

    def simulated(self, node: str) -> frozenset[str]:
        """Return UUIDs of the node's GPUs that do not exist."""


class Readings(Protocol):
    """A source of the GPUs' readings."""

    def get(self, node: str) -> Mapping[str, Reading]:
        """Return a node's readings by UUID; the same object until new data arrives."""


class NoReadings:
    """A source without readings."""

    def get(self, _: str) -> Mapping[str, Reading]:
        """Return no readings."""
        return NOTHING


class CachedView(NamedTuple):
    """A view with its state; the version changes with the node and with what is held."""

    version: int
    readings: Mapping[str, Reading]
    view: NodeView


class NodeViews:
    """The views of all known nodes.

    Args:
        machines: nodes, with what is held of them.
        readings: readings of their GPUs; None: there are none.
    """

    def __init__(self, source: NodeSource, readings: Readings | None = None) -> None:
        self._source, self._cluster = source, source.cluster
        self._readings = readings or NoReadings()
        self._known: dict[str, CachedView] = {}
        """Known views by node name."""

    def all(self) -> tuple[NodeView, ...]:
        """Return the nodes that have GPUs, by name."""
        nodes = [node for node in self._cluster.nodes() if node.devices]
        self._known = {node.name: self._view(node) for node in nodes}
        return tuple(self._known[name].view for name in sorted(self._known))

    def totals(self) -> Totals:
        """Compute totals with arrays: 40,000 devices one by one would take a tenth of a second."""
        arrays = self._cluster.arrays
        there = arrays.health != ABSENT
        gpus = int(there.sum())
        return Totals(
            nodes=int(there.any(axis=1).sum()),
            gpus=gpus,
            available_gpus=int((arrays.free_milli[there] == WHOLE_GPU).sum()),
            gpu_utilization=_percent(int(arrays.used_milli[there].sum()), gpus * WHOLE_GPU),
            gpu_memory_usage=_percent(
                int(arrays.used_memory[there].sum()), int(arrays.memory[there].sum())
            ),
            fragmentation=fragmentation(arrays),
        )

    def _view(self, node: Node) -> CachedView:
        row = self._cluster.row(node.name)
        assert row is not None  # noqa: S101 - it is one of the cluster's
        version = int(self._cluster.arrays.version[row])
        readings, known = self._readings.get(node.name), self._known.get(node.name)
        if known is not None and known.version == version and known.readings is readings:
            return known
        return CachedView(version, readings, self._build_view(node, row, readings))

    def _build_view(self, node: Node, row: int, readings: Mapping[str, Reading]) -> NodeView:
        arrays = self._cluster.arrays
        used, memory = arrays.used_milli[row].tolist(), arrays.used_memory[row].tolist()
        held = zip(used, memory, strict=True)
        of_each = zip(self._cluster.devices_at(row), held, strict=False)
        simulated = self._source.simulated(node.name)
        devices = tuple(
            _device(
                device,
                holds,
                readings.get(device.uuid, NOT_READ),
                simulated=device.uuid in simulated,
            )
            for device, holds in of_each
        )
        given = sum(min(milli, WHOLE_GPU) for milli in used[: len(devices)])
        return NodeView(
            node_name=node.name,
            gpu_type=", ".join(sorted({each.gpu_type for each in devices})),
            total_gpus=len(devices),
            available_gpus=sum(each.free_percent == PERCENT for each in devices),
            memory_per_gpu=min(each.memory_gb for each in devices),
            utilization=_percent(given, len(devices) * WHOLE_GPU),
            ready=node.ready and not node.cordoned,
            devices=devices,
            simulated=any(each.simulated for each in devices),
        )


def fragmentation(arrays: Arrays) -> float:
    """Return the percent of the free GPUs outside free blocks of the largest node's size."""
    return round(fragmented_fraction(arrays) * PERCENT, 1)


def _device(
    device: Device, used: tuple[int, int], reading: Reading, *, simulated: bool
) -> DeviceView:
    """Return a device's view; `used` is in thousandths of a GPU and MiB, and may exceed the GPU."""
    used_milli, used_memory = used
    free = device.health.takes_work
    given = min(_percent(used_milli, WHOLE_GPU), PERCENT)
    return DeviceView(
        index=device.index,
        uuid=device.uuid,
        gpu_type=device.model,
        memory_gb=gigabytes(device.memory),
        free_percent=PERCENT - given if free else 0.0,
        free_memory_gb=gigabytes(max(device.memory - used_memory, 0)) if free else 0.0,
        health=device.health.name.title(),
        resource=device.resource,
        mig_profile=device.profile,
        given_percent=given,
        simulated=simulated,
        temperature_celsius=reading.temperature_celsius,
        power_watts=reading.power_watts,
        busy_percent=reading.busy_percent,
    )


def _percent(part: int, whole: int) -> float:
    return round(part * PERCENT / whole, 1) if whole else 0.0
