# SPDX-License-Identifier: Apache-2.0
"""The search for places of a gang of several roles, where the policy's own choice fails.

    rows with space for any worker ─► classes of equal nodes ─► per class the vectors that it takes
        ─► node by node: by the workers placed so far of all roles but the largest, the most workers
           of the largest ─► all are placed, or no way exists

That is dynamic programming over a vector cover. It is exact while it takes at most MAX_STEPS steps;
a larger search ends without an answer. A step is a worker that is placed on a node in one way, or
a vector that is added to a state. Partial sums from which the rest cannot be reached are dropped.

Nodes with few free GPUs are used first. The policy has no part in the search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT, BoolArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.decide import grant_of
from gpupack_placement.feasibility import eligible_devices, units_of, usable, worker_slots
from gpupack_placement.node_packing import Devices, FreeDevice, FreeNode, Packing, Steps, Vector
from gpupack_placement.placement import Placement
from gpupack_placement.request import Gang, Role

MAX_STEPS: Final = 4096
"""The maximum number of steps of one search."""


@dataclass(frozen=True, slots=True)
class Found:
    """The placements by role; None: there are none, or `is_exact` False and none were found."""

    placements: tuple[tuple[Placement, ...], ...] | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class _Class:
    """Equal nodes by row, and what each of them takes."""

    rows: Sequence[int]
    node: FreeNode
    vectors: Sequence[Vector]


_Counts = tuple[int, ...]
"""The placed workers of each role but the largest, then the used nodes for each node limit."""


class RoleSearch:
    """One search; the cluster stays as it is. `among`: the rows of the candidates."""

    def __init__(self, cluster: Cluster, gang: Gang, among: BoolArray) -> None:
        self._cluster, self._gang, self._among = cluster, gang, among
        self._roles, self._steps = gang.limited_roles, Steps(MAX_STEPS)
        self._packing = self._new_packing(self._steps)
        self._view = NodeViews(cluster, self._roles, self._packing.extended)
        self._needed: Vector = tuple(role.workers for role in self._roles)
        self._largest = max(range(len(self._roles)), key=lambda n: self._roles[n].workers)
        self._others = [n for n in range(len(self._roles)) if n != self._largest]
        every = tuple(range(len(self._roles)))
        limits = [(every, gang.spread.max_nodes)]
        limits += [((n,), role.spread.max_nodes) for n, role in enumerate(gang.roles)]
        self._limits = [(numbers, limit) for numbers, limit in limits if limit is not None]

    def run(self) -> Found:
        """Return the placements of all workers."""
        free = int(self._cluster.arrays.free_gpu_milli[self._among].sum())
        if free < self._gang.milli:
            return Found(None, is_exact=True)
        nodes = [
            (each, number)
            for each in self._classes()
            for number in range(min(len(each.rows), sum(self._needed)))
        ]
        chosen = self._cover([each for each, _ in nodes])
        if chosen is None:
            return Found(None, is_exact=not self._steps.is_used_up)
        pairs = zip(nodes, chosen, strict=False)
        return Found(
            self._placements([(of.rows[n], vector) for (of, n), vector in pairs]), is_exact=True
        )

    @property
    def steps_taken(self) -> int:
        """Return the number of steps that the search took."""
        return MAX_STEPS - self._steps.left

    def _new_packing(self, steps: Steps) -> Packing:
        spread = self._gang.spread
        return Packing(
            self._roles,
            steps,
            one_per_node=spread.one_worker_per_node,
            same_clique=spread.same_clique,
        )

    def _classes(self) -> list[_Class]:
        """Return the classes of nodes that take anything, those with few free GPUs first."""
        found = []
        for node, rows in self._view.equal_nodes(self._among):
            vectors = self._packing.vectors(node)
            if vectors:
                found.append(_Class(rows, node, vectors))
        return sorted(found, key=lambda each: (len(each.node.devices), each.rows[0]))

    def _cover(self, nodes: Sequence[_Class]) -> list[Vector] | None:
        """Return the vector of each node up to the last one in use; None: no way was found.

        A node that equals the one before it changes only what that one changed.
        """
        rest = self._rest(nodes)
        most: dict[_Counts, int] = {(0,) * (len(self._others) + len(self._limits)): 0}
        ways: list[dict[_Counts, tuple[_Counts, Vector]]] = []
        for at, (each, left) in enumerate(zip(nodes, rest, strict=True)):
            most = {c: total for c, total in most.items() if self._can_reach(c, total, left)}
            way: dict[_Counts, tuple[_Counts, Vector]] = {}
            is_again = at > 0 and nodes[at - 1] is each
            changed = ways[-1] if is_again else most
            for counts, total in [(c, most[c]) for c in changed if c in most]:
                for vector in each.vectors:
                    if not self._steps.take():
                        return None
                    after = self._added(counts, vector)
                    if after is None:
                        continue
                    more = min(total + vector[self._largest], self._needed[self._largest])
                    if more > most.get(after, -1):
                        most[after], way[after] = more, (counts, vector)
            ways.append(way)
            done = next((c for c in way if not any(self._missing(c, most[c]))), None)
            if done is not None:
                return self._trace(done, ways)
        return None

    def _trace(
        self, counts: _Counts, ways: Sequence[dict[_Counts, tuple[_Counts, Vector]]]
    ) -> list[Vector]:
        """Return the vectors that lead to these counts, by node."""
        chosen: list[Vector] = []
        for way in reversed(ways):
            before, vector = way.get(counts, (counts, (0,) * len(self._roles)))
            chosen.append(vector)
            counts = before
        return chosen[::-1]

    def _added(self, counts: _Counts, vector: Vector) -> _Counts | None:
        """Return the counts with one more node; None: a node limit forbids it."""
        workers = [
            min(counts[at] + vector[n], self._needed[n]) for at, n in enumerate(self._others)
        ]
        for at, (numbers, limit) in enumerate(self._limits, len(workers)):
            used = counts[at] + int(any(vector[n] for n in numbers))
            if used > limit:
                return None
            workers.append(used)
        return tuple(workers)

    def _missing(self, counts: _Counts, largest: int) -> list[int]:
        """Return the workers of each role that are not placed yet."""
        missing = list(self._needed)
        for at, n in enumerate(self._others):
            missing[n] -= counts[at]
        missing[self._largest] -= largest
        return missing

    def _can_reach(self, counts: _Counts, largest: int, rest: tuple[Vector, int]) -> bool:
        """Tell whether the other nodes may take all missing workers; necessary, not sufficient."""
        missing, (workers, milli) = self._missing(counts, largest), rest
        if self._milli(missing) > milli:
            return False
        return all(need <= most for need, most in zip(missing, workers, strict=True))

    def _rest(self, nodes: Sequence[_Class]) -> list[tuple[Vector, int]]:
        """Return for each node the most workers by role and milli-GPU of it and all later ones."""
        workers, milli = [0] * len(self._roles), 0
        found: list[tuple[Vector, int]] = []
        for each in reversed(nodes):
            for n in range(len(workers)):
                workers[n] += max([vector[n] for vector in each.vectors])
            milli += max(map(self._milli, each.vectors))
            found.append((tuple(workers), milli))
        return found[::-1]

    def _milli(self, workers: Sequence[int]) -> int:
        return sum([n * role.request.milli for n, role in zip(workers, self._roles, strict=True)])

    def _placements(
        self, rows: Sequence[tuple[int, Vector]]
    ) -> tuple[tuple[Placement, ...], ...] | None:
        """Return the placements by role; the vectors may have more workers than are needed."""
        missing, placed = list(self._needed), [list[Placement]() for _ in self._roles]
        for row, vector in rows:
            wanted = tuple([min(n, left) for n, left in zip(vector, missing, strict=True)])
            if not any(wanted):
                continue
            node = self._view.node(row)
            devices = self._new_packing(Steps(MAX_STEPS)).devices(node, wanted)
            if devices is None:
                return None
            for n, workers in enumerate(devices):
                placed[n] += [self._placement(row, self._roles[n], each) for each in workers]
                missing[n] -= len(workers)
        return tuple(map(tuple, placed))

    def _placement(self, row: int, role: Role, devices: Devices) -> Placement:
        request, here = role.request, self._cluster.devices_at(row)
        grants = [grant_of(here[column], request) for column in sorted(d.column for d in devices)]
        return Placement(
            self._cluster.name_at(row),
            tuple(grants),
            request.cpu,
            request.memory,
            extended=request.extended,
        )


class NodeViews:
    """What the roles can tell of the nodes: amounts beyond what the gang requests are cut off."""

    def __init__(self, cluster: Cluster, roles: Sequence[Role], extended: Sequence[str]) -> None:
        self._cluster, self._roles, self._extended = cluster, roles, extended
        shares = [
            share for role in roles if (share := role.request.share) for _ in range(role.workers)
        ]
        self._max_shares = len(shares)
        self._max_memory = sum(share.memory for share in shares)
        self._links = any(r.request.needs_clique or r.spread.same_clique for r in roles)

    def equal_nodes(self, among: BoolArray) -> list[tuple[FreeNode, list[int]]]:
        """Return the nodes with space for any worker, each with the rows of all equal ones."""
        slots = [worker_slots(self._cluster, role.request) > 0 for role in self._roles]
        rows = np.flatnonzero(np.logical_or.reduce(slots) & among)
        if not len(rows):
            return []
        rows = rows[np.argsort(self._cluster.arrays.order[rows], kind="stable")]
        node, devices = self._figures(rows)
        figures = np.concatenate([node, devices.reshape(len(rows), -1)], axis=1)
        sets: dict[bytes, list[int]] = {}
        for at, of_row in enumerate(figures):
            sets.setdefault(of_row.tobytes(), []).append(at)
        return [
            (_free_node(node[at[0]], devices[at[0]]), rows[at].tolist()) for at in sets.values()
        ]

    def node(self, row: int) -> FreeNode:
        """Return the node of a row, with the columns of its devices."""
        node, devices = self._figures(np.array([row]))
        found = _free_node(node[0], devices[0])
        columns = np.flatnonzero(devices[0, :, 0]).tolist()
        pairs = zip(found.devices, columns, strict=True)
        return found._replace(devices=tuple([d._replace(column=c) for d, c in pairs]))

    def _figures(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the figures of FreeNode and those of FreeDevice, by row."""
        a, roles = self._cluster.arrays, self._roles
        may = np.zeros(len(rows), np.int64)
        serves = np.zeros((len(rows), a.shape[1]), np.int64)
        for number, role in enumerate(roles):
            request = role.request
            may |= usable(self._cluster, request)[rows].astype(np.int64) << number
            if request.devices:
                eligible = eligible_devices(self._cluster, request, at=rows)
                units = units_of(a, request, eligible, at=rows)
                serves |= (units > 0).astype(np.int64) << number
        workers = sum(role.workers for role in roles)
        amounts = [
            (a.free_cpu[rows], sum(role.workers * role.request.cpu for role in roles)),
            (a.free_ram[rows], sum(role.workers * role.request.memory for role in roles)),
            (a.free_pods[rows], workers),
        ]
        for name in self._extended:
            most = sum(role.workers * dict(role.request.extended).get(name, 0) for role in roles)
            amounts.append((a.extended.free(name, rows, like=a.pods), most))
        node = [may, *(np.minimum(free, most) for free, most in amounts)]
        milli = a.free_milli[rows]
        per_device = [
            serves,
            milli if self._max_shares else np.where(milli == WHOLE_GPU, milli, 0),
            np.minimum(a.free_memory[rows], self._max_memory),
            np.minimum(a.free_shares[rows], self._max_shares),
            a.clique[rows] if self._links else np.full_like(serves, ABSENT),
        ]
        return np.stack(node, axis=1), np.where(
            (serves > 0)[:, :, None], np.stack(per_device, axis=2), 0
        )


def _free_node(node: IntArray, devices: IntArray) -> FreeNode:
    serves, cpu, memory, pods, *extended = node.tolist()
    free = tuple([FreeDevice(*figures) for figures in devices.tolist() if figures[0]])
    return FreeNode(serves, cpu, memory, pods, tuple(extended), free)
