# SPDX-License-Identifier: Apache-2.0
"""The figures of a cluster: one row per node, one column per device, padded.

Policies read these arrays. They are column-major: reductions over the devices of each node then run
over contiguous memory (4 times faster at 5000 x 8 than row-major). A row without a node and a
column without a device have nothing free, so no mask has to exclude them. The same holds for a MIG
slice: its capacity in milli-GPU is 0, so policies see only GPUs (feasibility.py finds slices).

`free_*` is what new work may take. It is never negative, and zero on a device that takes no new
work. It is derived from `used_*`: for a whole row by `refresh`, after each charge by `charge`.
"""

from dataclasses import dataclass, fields, replace
from itertools import count, islice
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gpupack_devices.units import WHOLE_GPU, MiB
from gpupack_placement.extended import ExtendedColumns
from gpupack_placement.model import Health
from gpupack_placement.table import Table

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.signedinteger[Any]]

ABSENT = -1
MIXED = -2
"""MIXED: in `node_kind` GPUs of several kinds; in `node_resource` devices of several resources; in
`group` shares of several groups."""

SIZES = 10
"""Number of size classes of holders: 0 is a share, 1 to 8 as many whole GPUs, 9 more."""

_VERSIONS = count(1)
"""One counter for all clusters. Overlays and forks start with the versions of the rows that they
copy, so figures of a row that are known there need not be computed again."""

_EMPTIED = -2
"""The versions of emptied rows go down from here. They stay as they are when the rows are emptied
again. 0 is the version of rows that never had a node."""

_PER_DEVICE: dict[str, tuple[type[np.generic], int]] = {
    "health": (np.int8, ABSENT),
    "model": (np.int16, ABSENT),
    "kind": (np.int16, ABSENT),
    "clique": (np.int16, ABSENT),
    "numa": (np.int16, ABSENT),
    "resource": (np.int16, ABSENT),
    "profile": (np.int16, ABSENT),
    "parent": (np.int16, ABSENT),
    "capacity": (np.int32, 0),
    "memory": (np.int32, 0),
    "used_milli": (np.int32, 0),
    "used_memory": (np.int64, 0),
    "free_milli": (np.int32, 0),
    "free_memory": (np.int32, 0),
    "limits": (np.bool_, 0),
    "speed": (np.int16, 0),
    "group": (np.int32, ABSENT),
    "max_shares": (np.int32, 0),
    "used_shares": (np.int32, 0),
    "free_shares": (np.int32, 0),
}
_PER_NODE: dict[str, tuple[type[np.generic], int]] = {
    "present": (np.bool_, 0),
    "ready": (np.bool_, 0),
    "cordoned": (np.bool_, 0),
    "taints": (np.int32, 0),
    "order": (np.int64, 0),
    "version": (np.int64, 0),
    "node_kind": (np.int16, ABSENT),
    "node_resource": (np.int16, ABSENT),
    "gpus": (np.int32, 0),
    "idle_gpus": (np.int32, 0),
    "free_gpu_milli": (np.int32, 0),
    "cpu": (np.int64, 0),
    "ram": (np.int64, 0),
    "used_cpu": (np.int64, 0),
    "used_ram": (np.int64, 0),
    "free_cpu": (np.int64, 0),
    "free_ram": (np.int64, 0),
    "pods": (np.int32, 0),
    "used_pods": (np.int32, 0),
    "free_pods": (np.int32, 0),
}

_CHANGED_BY_HOLDERS = (
    "group",
    "used_milli",
    "used_memory",
    "used_shares",
    "free_milli",
    "free_memory",
    "free_shares",
    "free_gpu_milli",
    "idle_gpus",
    "used_cpu",
    "used_ram",
    "free_cpu",
    "free_ram",
    "used_pods",
    "free_pods",
    "version",
    "holders",
)


class Kind(NamedTuple):
    """GPUs that no request can distinguish: same model, same memory."""

    model: str
    memory: MiB


@dataclass(slots=True)
class Arrays:
    """The arrays. Units: milli-GPU, milli-CPU, MiB. Shapes: (nodes, devices), then (nodes,)."""

    health: IntArray
    """model.Health, ABSENT where there is no device."""
    model: IntArray
    """Index into the cluster's table of model names."""
    kind: IntArray
    """Index into `kinds`; ABSENT for a MIG slice as well."""
    clique: IntArray
    """0, 1, … within the node; ABSENT: no NVLink."""
    numa: IntArray
    resource: IntArray
    """Index into the cluster's table of resource names; ABSENT where there is no device."""
    profile: IntArray
    """Index into the cluster's table of MIG profiles; ABSENT: a whole GPU."""
    parent: IntArray
    """0, 1, … within the node: the GPU that a MIG slice is part of."""
    capacity: IntArray
    """1000 milli, 0 of a MIG slice."""
    memory: IntArray
    """Capacity in MiB."""
    used_milli: IntArray
    """1000 for a MIG slice that is held."""
    used_memory: IntArray
    """64 bits: the sum of what all holders claim of one device may be large."""
    free_milli: IntArray
    free_memory: IntArray
    limits: BoolArray
    """Whether shares of the device can be limited."""
    speed: IntArray
    """Speed in per mille of the median of the device's model."""
    group: IntArray
    """Index into the cluster's table of groups: the group with shares of the device. ABSENT: it has
    no shares. MIXED: shares of several groups, which no decision makes; no share is added until all
    of them are gone."""
    max_shares: IntArray
    used_shares: IntArray
    """Shares of the device that are held; a whole GPU counts as none."""
    free_shares: IntArray

    present: BoolArray
    ready: BoolArray
    cordoned: BoolArray
    taints: IntArray
    """Index into the cluster's table of taint sets."""
    order: IntArray
    """Ties go to the node with the smallest value."""
    version: IntArray
    """Rows with equal versions, in any copy of any cluster, are equal in all other figures."""
    node_kind: IntArray
    """The `kind` of all GPUs of the node, MIXED or ABSENT."""
    node_resource: IntArray
    """The `resource` of all devices of the node, MIXED or ABSENT."""
    gpus: IntArray
    """GPUs of the node in any health; MIG slices do not count."""
    idle_gpus: IntArray
    """GPUs of which nothing is used and that take new work."""
    free_gpu_milli: IntArray
    """Sum of free_milli."""
    cpu: IntArray
    ram: IntArray
    used_cpu: IntArray
    used_ram: IntArray
    free_cpu: IntArray
    free_ram: IntArray
    pods: IntArray
    """Maximum number of pods; MAX_PODS: no limit."""
    used_pods: IntArray
    free_pods: IntArray

    holders: IntArray
    """Shape (nodes, SIZES): number of holders of the node's GPUs, by size."""
    kinds: Table[Kind]
    """The table of kinds; overlays share it, as they share the inventory."""
    extended: ExtendedColumns
    """All other resources, by name."""

    @classmethod
    def empty(cls, rows: int, columns: int) -> Self:
        """Create arrays without a node in any row."""
        arrays: dict[str, Any] = {
            name: np.full((rows, columns), fill, dtype, order="F")
            for name, (dtype, fill) in _PER_DEVICE.items()
        }
        for name, (dtype, fill) in _PER_NODE.items():
            arrays[name] = np.full(rows, fill, dtype)
        holders = np.zeros((rows, SIZES), np.int32, order="F")
        return cls(**arrays, holders=holders, kinds=Table(), extended=ExtendedColumns())

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), padding included."""
        rows, columns = self.health.shape
        return rows, columns

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(*map(_copied, (getattr(self, f.name) for f in fields(self))))

    def overlay(self) -> Self:
        """Return a copy in which what holders change is independent; the inventory is shared."""
        changed = {name: getattr(self, name).copy(order="K") for name in _CHANGED_BY_HOLDERS}
        return replace(self, extended=self.extended.overlay(), **changed)

    def grown(self, rows: int, columns: int) -> Self:
        """Return a copy with more rows and columns."""
        larger = type(self).empty(rows, columns)
        old_rows, old_columns = self.shape
        for name in _PER_DEVICE:
            getattr(larger, name)[:old_rows, :old_columns] = getattr(self, name)
        for name in (*_PER_NODE, "holders"):
            getattr(larger, name)[:old_rows] = getattr(self, name)
        larger.kinds, larger.extended = self.kinds, self.extended.grown(rows)
        return larger

    def clear_row(self, row: int) -> None:
        """Remove the node from this row."""
        for name, (_, fill) in (_PER_DEVICE | _PER_NODE).items():
            getattr(self, name)[row] = fill
        self.holders[row] = 0
        self.extended.clear_row(row)
        self.version[row] = next(_VERSIONS)

    def charge(
        self, row: int, column: int, *, milli: int, memory: int, shares: int, group: int
    ) -> None:
        """Add usage to one device; negative figures give back. `charge_node` must follow.

        The method works number by number: a take or a give-back touches a few, and each pass of
        numpy over a row of eight costs as much as twenty of them.
        """
        at = row, column
        self.used_milli[at] = used = self.used_milli.item(at) + milli
        self.used_memory[at] = used_memory = self.used_memory.item(at) + memory
        before_shares = self.used_shares.item(at)
        self.used_shares[at] = used_shares = before_shares + shares
        if shares:
            self._join(at, group, before=before_shares, now=used_shares)
        if self.health.item(at) > Health.DEGRADED:
            return
        before, free = self.free_milli.item(at), max(self.capacity.item(at) - used, 0)
        self.free_milli[at] = free
        self.free_memory[at] = max(self.memory.item(at) - used_memory, 0)
        self.free_shares[at] = max(self.max_shares.item(at) - used_shares, 0)
        self.free_gpu_milli[row] += free - before
        self.idle_gpus[row] += (free == WHOLE_GPU) - (before == WHOLE_GPU)

    def _join(self, at: tuple[int, int], group: int, *, before: int, now: int) -> None:
        there = self.group.item(at)
        if now <= 0:
            self.group[at] = ABSENT
        elif now > before and there != group:
            self.group[at] = group if there == ABSENT else MIXED

    def charge_node(self, row: int, *, cpu: int, ram: int, pods: int) -> None:
        """Add usage to the node's CPU, memory and pods; the row gets a new version."""
        self.used_cpu[row] = used_cpu = self.used_cpu.item(row) + cpu
        self.used_ram[row] = used_ram = self.used_ram.item(row) + ram
        self.free_cpu[row] = max(self.cpu.item(row) - used_cpu, 0)
        self.free_ram[row] = max(self.ram.item(row) - used_ram, 0)
        self.used_pods[row] = used_pods = self.used_pods.item(row) + pods
        self.free_pods[row] = max(self.pods.item(row) - used_pods, 0)
        self.version[row] = next(_VERSIONS)

    def count_holder(self, row: int, *, gpus: int, by: int) -> None:
        """Count one more (`by` 1) or one less (-1) holder of this many whole GPUs; 0: a share."""
        self.holders[row, min(gpus, SIZES - 1)] += by

    def has_room(
        self, row: int, column: int, *, milli: int, memory: int, shares: int, group: int
    ) -> bool:
        """Tell whether a grant fits by capacity and by group of shares, in any health."""
        if shares and self.group[row, column] not in {ABSENT, group}:
            return False
        milli_fits = self.used_milli[row, column] + milli <= WHOLE_GPU
        memory_fits = self.used_memory[row, column] + memory <= self.memory[row, column]
        shares_fit = self.used_shares[row, column] + shares <= self.max_shares[row, column]
        return bool(milli_fits and memory_fits and (shares_fit or not shares))

    def emptied(self) -> Self:
        """Return read-only arrays with nothing used, all devices healthy, all nodes ready.

        No node is cordoned. Every refusal needs these arrays, so they share with the original what
        does not differ.
        """
        no_device, no_node = np.zeros_like(self.used_milli), np.zeros_like(self.used_cpu)
        ideal = replace(
            self,
            health=np.minimum(self.health, Health.HEALTHY),
            used_milli=no_device,
            used_memory=np.zeros_like(self.used_memory),
            used_shares=no_device,
            group=np.full_like(self.group, ABSENT),
            free_milli=self.capacity,
            free_memory=self.memory,
            free_shares=self.max_shares,
            ready=self.present,
            cordoned=np.zeros_like(self.cordoned),
            version=np.minimum(self.version, _EMPTIED - self.version),
            idle_gpus=self.gpus,
            free_gpu_milli=self.gpus * WHOLE_GPU,
            used_cpu=no_node,
            used_ram=no_node,
            free_cpu=self.cpu,
            free_ram=self.ram,
            used_pods=np.zeros_like(self.used_pods),
            free_pods=self.pods,
            holders=np.zeros_like(self.holders),
            extended=self.extended.emptied(),
        )
        for name in (*_PER_DEVICE, *_PER_NODE, "holders"):
            setattr(ideal, name, _read_only(getattr(ideal, name)))
        return ideal

    def refresh(self, rows: slice) -> None:
        """Derive what is free from what is used."""
        working = takes_work(self.health[rows])
        free = np.maximum(self.capacity[rows] - self.used_milli[rows], 0) * working
        self.free_milli[rows] = free
        left = np.maximum(self.memory[rows] - self.used_memory[rows], 0)
        self.free_memory[rows] = left * working
        slots = np.maximum(self.max_shares[rows] - self.used_shares[rows], 0)
        self.free_shares[rows] = slots * working
        self.free_gpu_milli[rows] = free.sum(axis=1)
        self.idle_gpus[rows] = (free == WHOLE_GPU).sum(axis=1)
        self.free_cpu[rows] = np.maximum(self.cpu[rows] - self.used_cpu[rows], 0)
        self.free_ram[rows] = np.maximum(self.ram[rows] - self.used_ram[rows], 0)
        self.free_pods[rows] = np.maximum(self.pods[rows] - self.used_pods[rows], 0)
        changed = len(free)
        self.version[rows] = np.fromiter(islice(_VERSIONS, changed), np.int64, changed)


def takes_work(health: IntArray) -> BoolArray:
    """Return which devices, by their model.Health, may get new work."""
    taking: BoolArray = (health >= Health.HEALTHY) & (health <= Health.DEGRADED)
    return taking


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    shown = array.view()
    shown.flags.writeable = False
    return shown


def _copied(part: Any) -> Any:
    return part.copy(order="K") if isinstance(part, np.ndarray) else part.copy()
