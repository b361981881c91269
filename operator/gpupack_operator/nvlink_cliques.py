# SPDX-License-Identifier: Apache-2.0
"""NVLink cliques of the cluster's GPUs, as GPUNodes list them: a reflector's store."""

from collections.abc import Iterable, Mapping

from gpupack_crds.kinds import GpuNode
from gpupack_crds.placement import NodePlacement


class NvlinkCliques:
    """NVLink cliques by node; nodes without NVLink are omitted."""

    def __init__(self) -> None:
        self._cliques: dict[str, Mapping[str, int]] = {}

    def of(self, placement: Iterable[NodePlacement]) -> Mapping[str, Mapping[str, int]]:
        """Return the cliques of a placement's nodes: for each node, clique numbers by UUID."""
        nodes = (each.node for each in placement)
        return {node: self._cliques[node] for node in nodes if node in self._cliques}

    def replace(self, items: list[GpuNode]) -> None:
        """Replace all GPUNodes by these."""
        self._cliques.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: GpuNode) -> None:
        """Store the cliques of a new or changed GPUNode."""
        devices = item.status.devices
        found = {each.uuid: each.nvlink_clique for each in devices}
        known = {uuid: clique for uuid, clique in found.items() if clique is not None}
        if known:
            self._cliques[item.metadata.name] = known
        else:
            self.remove(item)

    def remove(self, item: GpuNode) -> None:
        """Remove a deleted GPUNode."""
        self._cliques.pop(item.metadata.name, None)
