# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUNodes, joined into placement's nodes.

Placement knows a node while both objects exist. A node whose inventory contradicts itself or
another's gets no work, and is tried again whenever any node changes.

A GPU that the agents of two nodes list belongs to the node that had it before, as long as this
process runs; else to the node on which gpupack has bound pods to the GPUs in dispute; else neither
node gets work. A node has no say if it is gone, was replaced by another of its name, or its kubelet
has been silent for long: only its GPUNode is left. No other times decide: those in a status come
from its agent alone, and the creation time of a GPUNode says nothing about what was listed later.
`rejected` has the reason why a node gets no work; its GPUNode gets it as a condition.

The GPUNode of an owned node also lists the pods that linger there. Those of an observed node are no
claims: its pods count by their requests.
"""

import logging
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from gpupack_crds.acceptance import Acceptance
from gpupack_crds.gpunode import GpuNodeSpec
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_placement import Cluster, DeviceUuid, DuplicateDevice, Node, NodeName
from gpupack_scheduler.errors import DuplicateGpus, InventoryInvalid
from gpupack_scheduler.inventory import core_node
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.listings import Listings
from gpupack_scheduler.ledger.silent_nodes import SilentNodes
from gpupack_scheduler.ledger.terminating import terminating_holders
from gpupack_scheduler.ledger.workers import is_terminating
from gpupack_scheduler.speeds import Speeds

log = logging.getLogger(__name__)


T = TypeVar("T", bound=objects.Object)


class ByName(Generic[T]):
    """A reflector's store: the objects of one cluster-scoped kind."""

    def __init__(self, changed: Callable[[Collection[str]], None]) -> None:
        self.items: dict[str, T] = {}
        self._changed = changed

    def upsert(self, item: T) -> None:
        """Add or update an object."""
        self.items[item.metadata.name] = item
        self._changed([item.metadata.name])

    def remove(self, item: T) -> None:
        """Remove an object. What is held on that node stays held."""
        self.items.pop(item.metadata.name, None)
        self._changed([item.metadata.name])

    def replace(self, items: list[T]) -> None:
        """Replace all objects by these."""
        before = self.items
        self.items = {item.metadata.name: item for item in items}
        self._changed([*sorted(before.keys() - self.items.keys()), *self.items])


class NodeStores:
    """The stores that keep the cluster's nodes equal to those of the API."""

    def __init__(
        self,
        cluster: Cluster,
        table: ClaimTable,
        observed_resources: Collection[str],
        acceptance: Acceptance | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._acceptance = cluster, acceptance
        self._claims = table
        self._observed = observed_resources
        self._silences = SilentNodes(clock)
        self.rejected: dict[str, InventoryInvalid] = {}
        """Nodes that get no work, and why."""
        self._listings = Listings()
        self._speeds = Speeds()
        self.maintained: dict[str, GpuNode] = {}
        """GPUNodes of which something is in maintenance, by name."""
        self.failed: dict[NodeName, dict[DeviceUuid, str]] = {}
        """Failed GPUs on nodes whose GPUs gpupack hands out, and why."""
        self.nodes: ByName[objects.Node] = ByName(self._nodes_changed)
        self.gpus: ByName[GpuNode] = ByName(self._gpus_changed)

    def retry(self) -> None:
        """Join rejected nodes again, since more claims are known."""
        self._join(())

    def expire(self) -> None:
        """Release GPUs of nodes that have become silent for long to other nodes that list them."""
        if self._silences.became_long() and self.rejected:
            self._join(())

    def _nodes_changed(self, names: Collection[str]) -> None:
        for name in names:
            self._silences.put(name, self.nodes.items.get(name))
        self._join(names)

    def _gpus_changed(self, names: Collection[str]) -> None:
        faster = set[str]()
        for name in names:
            gpus = self.gpus.items.get(name)
            faster |= self._speeds.put(name, gpus)
            self._listings.put(name, gpus)
            self._see_maintenance(name, gpus)
            self._see_failures(NodeName(name), gpus)
            self._claims.set_terminating_on(
                NodeName(name), terminating_holders(gpus) if gpus else {}
            )
        self._join([*names, *sorted(faster.difference(names))])

    def _see_maintenance(self, name: str, gpus: GpuNode | None) -> None:
        """Report a node whose spec changed: other jobs may have to leave its unchanged GPUs."""
        before = self.maintained.pop(name, None)
        if gpus is not None and gpus.spec.maintenance:
            self.maintained[name] = gpus
        if (before.spec if before else GpuNodeSpec()) != (gpus.spec if gpus else GpuNodeSpec()):
            self._claims.changes.node(NodeName(name))

    def _see_failures(self, name: NodeName, gpus: GpuNode | None) -> None:
        """Report a node whose failed GPUs or causes changed, so that holders are checked again."""
        before = self.failed.pop(name, {})
        failed = _failed(gpus) if gpus else {}
        if failed:
            self.failed[name] = failed
        if failed != before:
            self._claims.changes.node(name)

    def _join(self, names: Collection[str]) -> None:
        for name in names:
            self._put(name)
        for other in sorted(self.rejected.keys() - set(names)):
            self._put(other)

    def _put(self, name: str) -> None:
        node, gpus = self.nodes.items.get(name), self.gpus.items.get(name)
        if node is None or gpus is None or not gpus.is_of(node):
            self.rejected.pop(name, None)
            self._remove(name)
            return
        try:
            self._require_undisputed(name)
            speeds = self._speeds.of(name)
            self._set(core_node(node, gpus, self._observed, self._acceptance, speeds=speeds))
            self.rejected.pop(name, None)
        except DuplicateDevice as error:
            self._reject(name, DuplicateGpus(str(error)))
        except InventoryInvalid as error:
            self._reject(name, error)

    def _reject(self, name: str, why: InventoryInvalid) -> None:
        self._remove(name)
        if str(self.rejected.get(name, "")) != str(why):
            log.error("node %s gets no work: %s", name, why)
        self.rejected[name] = why

    def _require_undisputed(self, name: str) -> None:
        """Require that the node's GPUs are on no other node; a node without a say gives way."""
        for rival, uuids in self._listings.rivals(name).items():
            if self._is_counted(name) and not self._is_counted(rival):
                if rival in self._cluster:
                    self._reject(rival, _disputed(uuids, rival=name))
            elif not self._is_on_own_node(name, uuids, rival=rival):
                raise _disputed(uuids, rival=rival)

    def _is_counted(self, name: str) -> bool:
        """Tell whether the list in a GPUNode still counts against other nodes."""
        node, gpus = self.nodes.items.get(name), self.gpus.items.get(name)
        is_there = node is not None and gpus is not None and gpus.is_of(node)
        return is_there and not self._silences.is_long(name)

    def _is_on_own_node(self, name: str, uuids: AbstractSet[str], *, rival: str) -> bool:
        """Tell whether GPUs that both nodes list are on this node and not on the other."""
        homes = {self._cluster.node_of_device(DeviceUuid(uuid)) for uuid in uuids}
        if homes & {name, rival}:
            return rival not in homes
        return self._is_held(name, uuids) and not self._is_held(rival, uuids)

    def _is_held(self, name: str, uuids: AbstractSet[str]) -> bool:
        """Tell whether any of these GPUs is held there by a decision, not by an agent's report."""
        held = (
            self._cluster.holders_of(node=NodeName(name), uuid=DeviceUuid(uuid)) for uuid in uuids
        )
        return any(not is_terminating(holder) for holders in held for holder in holders)

    def _set(self, node: Node) -> None:
        if self._cluster.node(node.name) != node:
            self._cluster.set_node(node)
            self._claims.node_changed(node.name)

    def _remove(self, name: str) -> None:
        if name in self._cluster:
            self._cluster.remove_node(NodeName(name))
            self._claims.node_changed(NodeName(name))


def _disputed(uuids: AbstractSet[str], *, rival: str) -> DuplicateGpus:
    return DuplicateGpus(
        f"its agent lists {min(uuids)} ({len(uuids)} such GPUs), which the agent of node {rival} "
        f"lists too: one of the two is wrong; if node {rival} is gone, kubectl delete node {rival}"
    )


def _failed(gpus: GpuNode) -> dict[DeviceUuid, str]:
    if gpus.status.mode == "observed":
        return {}
    return {
        DeviceUuid(device.uuid): device.cause
        for device in gpus.status.devices
        if device.health == "Failed"
    }
