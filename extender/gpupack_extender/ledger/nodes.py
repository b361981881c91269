# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUNodes, joined into core's nodes.

A node is known to core while both are there. One whose inventory contradicts itself or another's
gets no work, and is tried again whenever any node changes.

Of an owned node its GPUNode also tells which pods linger there. Those of an observed node are no
claims: its pods count by their requests.
"""

import logging
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import gpupack_core as core
from gpupack_crds.kinds import GpuNode
from gpupack_extender.errors import InventoryInvalid
from gpupack_extender.inventory import core_node
from gpupack_extender.ledger.claim_table import ClaimTable
from gpupack_extender.ledger.lingering import lingering
from gpupack_kube import objects

log = logging.getLogger(__name__)


T = TypeVar("T", bound=objects.Object)


class ByName(Generic[T]):
    """A reflector's store: the objects of one cluster-scoped kind."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.items: dict[str, T] = {}
        self._changed = changed

    def upsert(self, item: T) -> None:
        """An object appeared or changed."""
        self.items[item.metadata.name] = item
        self._changed(item.metadata.name)

    def remove(self, item: T) -> None:
        """An object is gone; what is held on that node stays held."""
        self._forget(item.metadata.name)

    def replace(self, items: list[T]) -> None:
        """These are all."""
        for name in sorted(self.items.keys() - {item.metadata.name for item in items}):
            self._forget(name)
        for item in items:
            self.upsert(item)

    def _forget(self, name: str) -> None:
        self.items.pop(name, None)
        self._changed(name)


class NodeStores:
    """Keeps the cluster's nodes as the API has them."""

    def __init__(
        self, cluster: core.Cluster, table: ClaimTable, observed_resources: Collection[str]
    ) -> None:
        self._cluster = cluster
        self._claims = table
        self._observed = observed_resources
        self._rejected: set[str] = set()
        self.nodes: ByName[objects.Node] = ByName(self._join)
        self.gpus: ByName[GpuNode] = ByName(self._gpus_changed)

    def _gpus_changed(self, name: str) -> None:
        gpus = self.gpus.items.get(name)
        self._claims.lingering_on(core.NodeName(name), lingering(gpus) if gpus else {})
        self._join(name)

    def _join(self, name: str) -> None:
        self._put(name)
        for other in sorted(self._rejected - {name}):
            self._put(other)

    def _put(self, name: str) -> None:
        node, gpus = self.nodes.items.get(name), self.gpus.items.get(name)
        if node is None or gpus is None:
            self._rejected.discard(name)
            self._remove(name)
            return
        try:
            self._set(core_node(node, gpus, self._observed))
            self._rejected.discard(name)
        except (InventoryInvalid, core.DuplicateDevice) as error:
            self._remove(name)
            if name not in self._rejected:
                log.error("node %s gets no work: %s", name, error)  # noqa: TRY400 - not a bug
            self._rejected.add(name)

    def _set(self, node: core.Node) -> None:
        if self._cluster.node(node.name) != node:
            self._cluster.set_node(node)
            self._claims.node_changed(node.name)

    def _remove(self, name: str) -> None:
        if name in self._cluster:
            self._cluster.remove_node(core.NodeName(name))
            self._claims.node_changed(core.NodeName(name))
