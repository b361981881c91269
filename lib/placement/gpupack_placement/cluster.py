# SPDX-License-Identifier: Apache-2.0
"""The nodes of the cluster and the placements that are held: names over Arrays.

Holdings are keyed by holder and by node name, apart from the inventory: a node or a device may
vanish while it is held and come back, and a placement may be read from the API before its node is.
The used figures of a row always equal the sum over the holders of that node.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import Any, Self

import numpy as np

from gpupack_devices.units import WHOLE_GPU, DeviceUuid, Holder, MiB, MilliGpu, NodeName
from gpupack_placement.arrays import ABSENT, MIXED, Arrays, BoolArray, IntArray, Kind
from gpupack_placement.errors import (
    DuplicateDevice,
    OverAllocated,
    UnknownDevice,
    UnknownNode,
)
from gpupack_placement.holdings import Holdings
from gpupack_placement.masks import SelectorMasks
from gpupack_placement.memo import RowMemo
from gpupack_placement.model import MAX_PODS, Device, Health, Node, Taint
from gpupack_placement.placement import Grant, Placement
from gpupack_placement.resource_views import ResourceViews
from gpupack_placement.table import Table
from gpupack_placement.taints import TaintSets

NO_ROW = -1
"""The row of an unknown node; it is the last element of masks, which is cut off."""

_LIFECYCLE_TAINTS = "node.kubernetes.io/"
"""Prefix of the taints that Kubernetes puts on an unhealthy node and removes again."""

_OWN = (
    "_rows",
    "_columns",
    "_device_node",
    "_spare",
    "worn",
    "_holdings",
    "row_nodes",
    "arrays",
    "model_names",
    "taint_sets",
    "resources",
    "profiles",
    "groups",
    "room",
    "_ideal_room",
)
"""Attributes that a fork copies; their contents are immutable or replaced as a whole."""


_WORKED_OUT = ("room", "_ideal_room")
"""Figures by row; those of a row that has changed are computed again."""


@dataclass(frozen=True, slots=True)
class Free:
    """The part of a device that new work may take."""

    uuid: DeviceUuid
    milli: MilliGpu
    memory: MiB


class Cluster:
    """The inventory and its holders.

    A cluster is mutable and not thread-safe, except for its forks; each change touches one node.
    Ties between nodes go to the node that was added first; with `tie_seed` to the first in an order
    drawn from seed and name, which does not depend on the order of additions.
    """

    def __init__(self, nodes: Iterable[Node] = (), *, tie_seed: int | None = None) -> None:
        self.model_names: Table[str] = Table()
        self.taint_sets = TaintSets()
        self.resources: Table[str] = Table()
        self.profiles: Table[str] = Table()
        self.groups: Table[str] = Table()
        """Groups of shares. A number stays valid once it is given, since overlays share the table.
        The table has at most as many entries as there are groups that placements name."""
        self.selectors = SelectorMasks()
        self.room, self._ideal_room = RowMemo(np.int32), RowMemo(np.int32)
        self.narrowed = ResourceViews()
        self._ideal: Cluster | None = None
        self.inventory = object()
        """Stands for the nodes as they are; another one after each change of nodes.

        Overlays and forks have the same one as the original.
        """
        self.is_emptied = False
        """Whether this is an answer of `emptied`, which shows no current figures."""
        self.tie_seed = tie_seed
        self._added = 0
        self._rows: dict[NodeName, int] = {}
        self._columns: dict[NodeName, dict[DeviceUuid, int]] = {}
        self._device_node: dict[DeviceUuid, NodeName] = {}
        self.worn: set[NodeName] = set()
        """Nodes with degraded devices."""
        self._holdings = Holdings()
        given = list(nodes)
        self.row_nodes: list[Node | None] = [None] * len(given)
        self._spare = list(range(len(given)))[::-1]
        self.arrays = Arrays.empty(len(given), max((len(n.devices) for n in given), default=0))
        for node in given:
            self.set_node(node)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes in the order in which they were added."""
        return tuple(node for name in self._rows if (node := self.node(name)))

    def node(self, name: NodeName) -> Node | None:
        """Return the node as it was last set; None: there is no such node."""
        row = self._rows.get(name)
        return None if row is None else self.row_nodes[row]

    def row(self, name: NodeName) -> int | None:
        """Return the node's row in the arrays; it is valid until nodes are added or removed."""
        return self._rows.get(name)

    def rows(self, names: Iterable[NodeName]) -> IntArray:
        """Return the row of each node; NO_ROW: there is no such node."""
        return np.fromiter(map(self._rows.get, names, repeat(NO_ROW)), np.int64)

    def among(self, names: Iterable[NodeName] | None) -> BoolArray:
        """Return a mask of the rows of these nodes (None: of all); unknown names are ignored."""
        if names is None:
            return self.arrays.present
        mask = np.zeros(len(self.row_nodes) + 1, np.bool_)
        mask[self.rows(names)] = True
        return mask[:NO_ROW]

    def set_node(self, node: Node) -> None:
        """Add a node or replace its inventory; what is held there stays held."""
        for device in node.devices:
            if self._device_node.get(device.uuid, node.name) != node.name:
                other = self._device_node[device.uuid]
                raise DuplicateDevice(f"{device.uuid} of {node.name} is also on node {other}")
        row = self._rows.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        self._ideal, self.inventory = None, object()
        before = self._numbers_of(row)
        self._forget_devices(node.name)
        self._write_row(row, node)
        self.worn.discard(node.name)
        if any(device.health is Health.DEGRADED for device in node.devices):
            self.worn.add(node.name)
        _give_back(before)
        self.selectors.correct(row, node)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node; what is held there stays held in case the node comes back."""
        row = self._rows.pop(name, None)
        if row is None:
            raise UnknownNode(f"node {name} is not in the cluster")
        self._ideal, self.inventory = None, object()
        self._forget_devices(name)
        self.worn.discard(name)
        del self._columns[name]
        self.row_nodes[row] = None
        before = self._numbers_of(row)
        self.arrays.clear_row(row)
        _give_back(before)
        self.selectors.correct(row, None)
        self._spare.append(row)

    def take(self, holder: Holder, placement: Placement) -> None:
        """Hold a placement that fits; on an error nothing changes."""
        self._check_fits(placement)
        self.adopt(holder, placement)

    def adopt(self, holder: Holder, placement: Placement) -> None:
        """Hold a placement that exists already, whether or not it fits the inventory."""
        self._holdings.add(holder, placement)
        self._book(placement, sign=1)

    def give_back(self, holder: Holder) -> Placement:
        """End a holding and return what was held."""
        placement = self._holdings.remove(holder)
        self._book(placement, sign=-1)
        return placement

    def held(self) -> dict[Holder, Placement]:
        """Return all holdings, including those on nodes that are not in the cluster."""
        return self._holdings.all()

    def placement_of(self, holder: Holder) -> Placement | None:
        """Return the holder's placement; None: it holds nothing."""
        return self._holdings.of(holder)

    def node_of_device(self, uuid: DeviceUuid) -> NodeName | None:
        """Return the node that has the device; None: no node has it."""
        return self._device_node.get(uuid)

    def holders_on(self, name: NodeName) -> tuple[Holder, ...]:
        """Return the holders on the node, even while the node is not in the cluster."""
        return tuple(self._holdings.on(name))

    def holders_of(self, *, node: NodeName, uuid: DeviceUuid) -> tuple[Holder, ...]:
        """Return the holders of the device or of a share of it, in the inventory or not."""
        held = self._holdings.on(node).items()
        return tuple(
            holder for holder, placement in held if any(g.uuid == uuid for g in placement.devices)
        )

    def free_devices(self, name: NodeName) -> tuple[Free, ...]:
        """Return what is free on each device, by index; 0 on a device that takes no new work."""
        row = self._rows.get(name)
        if row is None:
            raise UnknownNode(f"node {name} is not in the cluster")
        milli, memory = self.arrays.free_milli[row].tolist(), self.arrays.free_memory[row].tolist()
        return tuple(
            Free(uuid, milli[column], memory[column])
            for uuid, column in self._columns[name].items()
        )

    def name_at(self, row: int) -> NodeName:
        """Return the name of the node in this row."""
        node = self.row_nodes[row]
        if node is None:
            raise UnknownNode(f"row {row} has no node")
        return node.name

    def devices_at(self, row: int) -> tuple[Device, ...]:
        """Return the devices of the row's node in the order of their columns."""
        node = self.row_nodes[row]
        return () if node is None else tuple(sorted(node.devices, key=lambda d: d.index))

    def fork(self) -> Self:
        """Return an independent copy for what-if questions, usable in any thread."""
        twin = copy(self)
        vars(twin).update({name: getattr(self, name).copy() for name in _OWN}, _ideal=None)
        twin.selectors, twin.narrowed = self.selectors.copy(self.row_nodes), ResourceViews()
        if self._ideal is not None:
            vars(twin).update(_ideal=_emptied(twin.overlay(), self._ideal))
        return twin

    def copy_figures(self, fork: "Cluster") -> None:
        """Take over the figures that a fork computed.

        The figures of rows that have changed since are computed again.
        """
        vars(self).update({name: getattr(fork, name).copy() for name in _WORKED_OUT})
        if self._ideal is not None:
            self._ideal.room = self._ideal_room

    def overlay(self) -> Self:
        """Return a cheap copy for plans.

        It starts from what is free and knows only its own holders. It shares the inventory with
        this cluster, so neither may change nodes while it is in use.
        """
        return self._overlay(self.arrays.overlay())

    def assume_free(self, placement: Placement) -> None:
        """Free a placement on an overlay, as if its holder in the original were gone."""
        self._book(placement, sign=-1)

    def assume_held(self, placement: Placement) -> None:
        """Hold a placement on an overlay: the reverse of assume_free."""
        self._book(placement, sign=1)

    def emptied(self) -> "Cluster":
        """Return the cluster in its best state: nothing held, all healthy, ready and uncordoned.

        The result is read-only and valid until nodes change; an overlay of it can be planned on.
        Until then it is the same object, so figures that were computed on it stay known.
        """
        if self._ideal is None:
            self._ideal = self._emptied()
        return self._ideal

    def _emptied(self) -> Self:
        ideal, lasting = self.arrays.emptied(), TaintSets()
        numbers = [lasting.take(_lasting(taints)) for taints in self.taint_sets.values]
        ideal.taints = np.array(numbers, np.int32)[ideal.taints]
        twin = self._overlay(ideal)
        twin.room, twin.taint_sets = self._ideal_room, lasting
        twin.is_emptied = True
        return twin

    def _overlay(self, arrays: Arrays) -> Self:
        twin = copy(self)
        vars(twin).update(_holdings=Holdings(), arrays=arrays, narrowed=self.narrowed.copy())
        return twin

    def _new_row(self, name: NodeName) -> int:
        if not self._spare:
            rows, columns = self.arrays.shape
            self._grow(rows + max(rows // 4, 8), columns)
        row = self._rows[name] = self._spare.pop()
        self.arrays.order[row] = self._order(name)
        self._added += 1
        return row

    def _grow(self, rows: int, columns: int) -> None:
        added = range(len(self.row_nodes), rows)
        self.row_nodes += [None] * len(added)
        self._spare += reversed(added)
        self.arrays = self.arrays.grown(rows, columns)
        self.selectors.forget()

    def _order(self, name: NodeName) -> int:
        if self.tie_seed is None:
            return self._added
        digest = blake2b(f"{self.tie_seed}:{name}".encode(), digest_size=7).digest()
        return int.from_bytes(digest)

    def _forget_devices(self, name: NodeName) -> None:
        for uuid in self._columns.get(name, ()):
            del self._device_node[uuid]

    def _write_row(self, row: int, node: Node) -> None:
        rows, columns = self.arrays.shape
        if len(node.devices) > columns:
            self._grow(rows, len(node.devices))
        a, order = self.arrays, int(self.arrays.order[row])
        a.clear_row(row)
        self.row_nodes[row] = node
        a.order[row], a.present[row] = order, True
        a.ready[row], a.cordoned[row] = node.ready, node.cordoned
        a.taints[row] = self.taint_sets.take(node.taints)
        a.cpu[row], a.ram[row] = node.cpu, node.memory
        a.pods[row] = MAX_PODS if node.pods is None else node.pods
        a.extended.write_row(row, node.extended, rows=len(a.pods))
        a.gpus[row] = sum(not device.is_slice for device in node.devices)
        self._write_devices(row, node.name)
        for placement in self._holdings.on(node.name).values():
            self._charge(row, placement, sign=1)
        a.refresh(slice(row, row + 1))

    def _write_devices(self, row: int, name: NodeName) -> None:
        a, devices, cliques = self.arrays, self.devices_at(row), Table[int]()
        parents = Table[DeviceUuid]()
        for column, device in enumerate(devices):
            a.health[row, column] = device.health
            a.model[row, column] = self.model_names.take(device.model)
            a.resource[row, column] = self.resources.take(device.resource)
            a.memory[row, column] = device.memory
            if device.is_slice:
                a.profile[row, column] = self.profiles.take(device.profile)
                a.parent[row, column] = parents.take(device.parent)
            else:
                a.capacity[row, column] = WHOLE_GPU
                a.kind[row, column] = a.kinds.take(Kind(device.model, device.memory))
                a.max_shares[row, column] = device.max_shares
            if device.clique is not None:
                a.clique[row, column] = cliques.take(device.clique)
            a.limits[row, column] = device.limits
            a.speed[row, column] = device.speed
            a.numa[row, column] = ABSENT if device.numa_node is None else device.numa_node
        a.node_kind[row], a.node_resource[row] = _of_all(a.kind[row]), _of_all(a.resource[row])
        self._columns[name] = {device.uuid: column for column, device in enumerate(devices)}
        self._device_node.update(dict.fromkeys(self._columns[name], name))

    def _numbers_of(self, row: int) -> list[tuple[Table[Any], int]]:
        """Return the table entries that the row's node uses."""
        a = self.arrays
        if not a.present[row]:
            return []
        used: list[tuple[Table[Any], int]] = [(self.taint_sets, int(a.taints[row]))]
        per_device = (
            (self.model_names, a.model),
            (a.kinds, a.kind),
            (self.resources, a.resource),
            (self.profiles, a.profile),
        )
        for table, numbers in per_device:
            used += [(table, number) for number in numbers[row].tolist() if number != ABSENT]
        return used

    def _book(self, placement: Placement, *, sign: int) -> None:
        row = self._rows.get(placement.node)
        if row is not None:
            self._charge(row, placement, sign=sign)

    def _charge(self, row: int, placement: Placement, *, sign: int) -> None:
        columns = self._columns[placement.node]
        for grant in placement.devices:
            if (column := columns.get(grant.uuid)) is not None:
                self.arrays.charge(
                    row,
                    column,
                    milli=sign * grant.milli,
                    memory=sign * grant.memory,
                    shares=sign * grant.shares,
                    group=self._group(grant) if grant.shares else ABSENT,
                )
        if placement.extended:
            self.arrays.extended.charge(row, placement.extended, sign=sign)
        self.arrays.charge_node(
            row, cpu=sign * placement.cpu, ram=sign * placement.memory, pods=sign * placement.pods
        )
        if placement.devices and not self._is_slice(row, columns.get(placement.devices[0].uuid)):
            shared = bool(placement.devices[0].shares)
            self.arrays.count_holder(row, gpus=0 if shared else len(placement.devices), by=sign)

    def _group(self, grant: Grant) -> int:
        number = self.groups.number(grant.group)
        return self.groups.take(grant.group) if number is None else number

    def _is_slice(self, row: int, column: int | None) -> bool:
        return column is not None and bool(self.arrays.profile[row, column] != ABSENT)

    def _check_fits(self, placement: Placement) -> None:
        row = self._rows.get(placement.node)
        if row is None:
            raise UnknownNode(f"node {placement.node} is not in the cluster")
        a = self.arrays
        if placement.cpu > a.free_cpu[row] or placement.memory > a.free_ram[row]:
            raise OverAllocated(
                f"{placement.node} has {a.free_cpu[row]} milli-CPU and {a.free_ram[row]} MiB free, "
                f"not {placement.cpu} and {placement.memory}"
            )
        if placement.pods > a.free_pods[row]:
            raise OverAllocated(f"{placement.node} runs as many pods as it may: {a.pods[row]}")
        for name, asked, left in a.extended.missing(row, placement.extended):
            raise OverAllocated(f"{placement.node} has {left} of {name} free, not {asked}")
        for grant in placement.devices:
            column = self._columns[placement.node].get(grant.uuid)
            if column is None:
                raise UnknownDevice(f"node {placement.node} has no device {grant.uuid}")
            fits = a.has_room(
                row,
                column,
                milli=grant.milli,
                memory=grant.memory,
                shares=grant.shares,
                group=self._group(grant) if grant.shares else ABSENT,
            )
            if not fits:
                raise OverAllocated(
                    f"{grant.uuid} on {placement.node} has no {grant.milli} milli-GPU and "
                    f"{grant.memory} MiB free, no slot for a share, or shares of another group"
                )


def _emptied(overlay: Cluster, original: Cluster) -> Cluster:
    """Return the emptied cluster of a fork, given an overlay of it and that of the original."""
    own = {"arrays": original.arrays, "taint_sets": original.taint_sets.copy()}
    vars(overlay).update(own, room=vars(overlay)["_ideal_room"], is_emptied=True)
    return overlay


def _of_all(numbers: IntArray) -> int:
    """Return the number that all devices of a node have, MIXED or ABSENT."""
    there = set(numbers.tolist()) - {ABSENT}
    return MIXED if len(there) > 1 else max(there, default=ABSENT)


def _give_back(used: Iterable[tuple[Table[Any], int]]) -> None:
    for table, number in used:
        table.give_back(number)


def _lasting(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if not taint.key.startswith(_LIFECYCLE_TAINTS))
