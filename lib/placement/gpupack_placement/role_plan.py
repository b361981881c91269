# SPDX-License-Identifier: Apache-2.0
"""Placement of one role: all of its workers or none.

Workers are identical, so whether they fit is a sum: each node has slots for a number of workers
(feasibility.worker_slots), at most one with `one_worker_per_node`, those of its best clique with
`same_clique`, and the `max_nodes` largest must add up to the role's workers. The choice of devices
on a node cannot spoil the sum: each choice takes the slot of one worker. So a plan is found exactly
when there is one, and the policy is free to choose: workers are placed one by one on an overlay of
the cluster, each on the best node from which the rest can still be placed. Trying several node
orders was rejected: it costs more and misses plans under `max_nodes`. Of these nodes those with
slots on healthy devices go first: a worker there takes one slot as well.

The limits of the gang must be part of the role's (Gang.limited_roles).
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from gpupack_devices.units import Holder, NodeName
from gpupack_placement.arrays import BoolArray, FloatArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.decide import best_row, place, scores_of
from gpupack_placement.devices import tightest_clique
from gpupack_placement.feasibility import (
    eligible_devices,
    fresh_slots,
    idle_devices,
    units_of,
    worker_slots,
)
from gpupack_placement.miss import NearestMiss
from gpupack_placement.nearest import nearest_gang
from gpupack_placement.placement import Placement
from gpupack_placement.policies.policy import Policy
from gpupack_placement.reasons import Refusal, count_text, request_text
from gpupack_placement.refusals import most_frequent_reason, refusal
from gpupack_placement.request import Request, Role, Spread
from gpupack_placement.serving import with_healthy_only


def plan_role(
    cluster: Cluster,
    role: Role,
    policy: Policy,
    names: tuple[NodeName, ...] | None,
    nearest: NearestMiss | None = None,
) -> tuple[Placement, ...] | Refusal:
    """Return the placement of each worker, or why they do not fit; the cluster is not changed.

    `nearest`: the nearest miss, if it is known.
    """
    among = cluster.among(names)
    slots = slots_by_row(cluster, role) * among
    fitting = min(_max_workers(slots, role.spread.node_limit), role.workers)
    plan = RolePlan(cluster.overlay(), role, policy, slots, workers=fitting)
    placements = plan.all_workers()
    if fitting == role.workers:
        return placements
    refused = refusal(
        cluster,
        role.request,
        candidates=names,
        gang=_missing_text(cluster, role, fitting),
        never=False,
        nearest=nearest
        or nearest_gang(role.request, lambda less: _would_fit(cluster, role, less, among)),
    )
    limit = most_frequent_reason(plan.cluster, role.request, candidates=names)
    return dataclasses.replace(refused, placed=fitting, limit=limit)


def choose_role(
    overlay: Cluster, role: Role, policy: Policy, among: BoolArray
) -> tuple[Placement, ...] | None:
    """Place all workers on an overlay, which holds them then; None: they do not fit.

    `among`: the rows of the candidates.
    """
    slots = slots_by_row(overlay, role) * among
    if _max_workers(slots, role.spread.node_limit) < role.workers:
        return None
    return RolePlan(overlay, role, policy, slots, workers=role.workers).all_workers()


def fits(cluster: Cluster, role: Role, among: BoolArray) -> bool:
    """Tell whether all workers fit on these rows."""
    slots = slots_by_row(cluster, role) * among
    return _max_workers(slots, role.spread.node_limit) >= role.workers


class RolePlan:
    """A plan that places as many workers as fit on its own overlay of the cluster.

    Invariant: the nodes in use, together with the largest of the nodes that may still be added,
    have slots for all workers.
    """

    def __init__(
        self, cluster: Cluster, role: Role, policy: Policy, slots: IntArray, *, workers: int
    ) -> None:
        """Place on this cluster, which is an overlay and is changed; `slots` as of slots_by_row."""
        self.cluster = cluster
        self._request, self._policy, self._role = role.request, policy, role
        self._max_nodes, self._workers = role.spread.node_limit, workers
        self._same_clique = role.spread.same_clique
        self._clique: BoolArray | None = None
        self._slots_at_first, self._slots = slots, slots.copy()
        self._healthy_request = self._prefer_healthy(workers)
        self._healthy_slots = self._slots_on_healthy()
        self._used = np.zeros(len(slots), np.bool_)
        self._placed = 0
        rows = np.flatnonzero(slots)
        self._scores = np.zeros(len(slots))
        if not policy.relative:
            self._scores[rows] = self._score(rows)

    def all_workers(self) -> tuple[Placement, ...]:
        """Place all workers; those of one node have consecutive indices."""
        return by_node([self.next_worker() for _ in range(self._workers)])

    def next_worker(self) -> Placement:
        """Place the next worker."""
        allowed = self._allowed()
        preferred = allowed & (self._healthy_slots > 0)
        rows = np.flatnonzero(preferred if preferred.any() else allowed)
        row = best_row(self.cluster.arrays, rows, self._scores_of(rows))
        if self._same_clique and self._clique is None:
            self._clique = self._clique_on(row)
        request = (
            self._healthy_request if self._healthy_request and preferred[row] else self._request
        )
        placement = place(self.cluster, row, request, self._policy, among=self._clique)
        self.cluster.take(Holder(f"planned {self._role.name} {self._placed}"), placement)
        self._placed += 1
        self._slots[row] -= 1
        self._healthy_slots = self._slots_on_healthy()
        self._used[row] = True
        if self._slots[row] and not self._policy.relative:
            self._scores[row] = self._score(np.array([row]))[0]
        return placement

    def _prefer_healthy(self, workers: int) -> Request | None:
        """Prefer healthy devices; for a clique either for all workers or for none.

        None: there is nothing to prefer, or the choice is made for all workers.
        """
        sound = with_healthy_only(self.cluster, self._request)
        if sound is None or not self._same_clique:
            return sound
        room = slots_by_row(self.cluster, dataclasses.replace(self._role, request=sound)) * (
            self._slots_at_first > 0
        )
        if _max_workers(room, self._max_nodes) >= workers:
            self._request, self._slots_at_first, self._slots = sound, room, room.copy()
        return None

    def _slots_on_healthy(self) -> IntArray:
        """Return the slots on healthy devices; only rows that have changed are computed again."""
        if self._healthy_request is None:
            return np.zeros_like(self._slots)
        return worker_slots(self.cluster, self._healthy_request)

    def _scores_of(self, rows: IntArray) -> FloatArray:
        return self._score(rows) if self._policy.relative else self._scores[rows]

    def _clique_on(self, row: int) -> BoolArray:
        """Return the devices of the clique that takes the whole role."""
        eligible = eligible_devices(self.cluster, self._request, at=row)
        units = units_of(self.cluster.arrays, self._request, eligible, at=row)
        needed = self._workers * self._request.devices
        return tightest_clique(self.cluster.arrays, row, units, needed)

    def _score(self, rows: IntArray) -> FloatArray:
        return scores_of(self.cluster, self._request, self._policy, rows)

    def _allowed(self) -> BoolArray:
        """Return the nodes that can take the next worker and leave a way to place all others."""
        has_room: BoolArray = self._slots > 0
        if self._max_nodes is None:
            return has_room
        addable = self._max_nodes - int(self._used.sum())
        if addable < 1:
            return has_room & self._used
        needed = self._workers - int(self._slots_at_first[self._used].sum())
        others = _max_workers(np.where(self._used, 0, self._slots_at_first), addable - 1)
        return has_room & (self._used | (self._slots_at_first + others >= needed))


def by_node(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """Order a role's placements so that workers of one node have consecutive indices.

    Workers are alike, so any of them may have any place. Programs assume that consecutive ranks are
    close: tensor parallelism and hierarchical collectives group them.
    """
    found = tuple(placements)
    first = {each.node: number for number, each in reversed(list(enumerate(found)))}
    return tuple(sorted(found, key=lambda each: first[each.node]))


def slots_by_row(cluster: Cluster, role: Role) -> IntArray:
    """Return the number of workers that fit, per row."""
    slots = worker_slots(cluster, role.request, same_clique=role.spread.same_clique)
    return _limited(slots, role)


def _limited(slots: IntArray, role: Role) -> IntArray:
    """Limit slots to the role's workers, which keeps sums small, or to one per node."""
    return np.minimum(slots, role.max_per_node)


def _max_workers(room: IntArray, nodes: int | None) -> int:
    """Return how many workers the largest `nodes` rows take (None: all rows)."""
    if nodes is None or nodes >= len(room):
        return int(room.sum())
    return int(np.partition(room, len(room) - nodes)[len(room) - nodes :].sum()) if nodes else 0


def _would_fit(cluster: Cluster, role: Role, request: Request, among: BoolArray) -> bool:
    """Tell whether the role would fit with this request instead."""
    slots = fresh_slots(cluster, request, same_clique=role.spread.same_clique)
    return _max_workers(_limited(slots, role) * among, role.spread.node_limit) >= role.workers


def _missing_text(cluster: Cluster, role: Role, fitting: int) -> str:
    """Describe the request, how many workers fit, and how many GPUs are missing."""
    workers = count_text(role.workers, "worker")
    each = f"{request_text(role.request)}{spread_text(role.spread)}"
    missing = _missing_devices(cluster, role)
    fit = "could ever fit" if cluster.is_emptied else "fit now"
    return f"{workers} × {each}: {fitting} of {workers} {fit}{missing}"  # noqa: RUF001


def _missing_devices(cluster: Cluster, role: Role) -> str:
    if role.request.share is not None or not role.request.devices:
        return ""
    noun = "MIG slice" if role.request.slices else "GPU"
    idle = idle_devices(cluster, role.request)
    asked, free = role.workers * role.request.devices, int(idle.sum())
    nodes = count_text(int((idle > 0).sum()), "node")
    which = noun if cluster.is_emptied else f"free {noun}"
    stock = f"{count_text(free, which)} in {nodes}, {asked} requested"
    if free >= asked:
        return f"; enough {noun}s but not where they are needed ({stock})"
    missing = asked - free
    return f"; {count_text(missing, noun)} {'is' if missing == 1 else 'are'} missing ({stock})"


def spread_text(spread: Spread) -> str:
    """Describe the limits, such as « on at most 2 nodes»; empty: there are none."""
    nodes = (
        "" if spread.max_nodes is None else f" on at most {count_text(spread.max_nodes, 'node')}"
    )
    nodes = " in one NVLink clique" if spread.same_clique else nodes
    return f"{nodes}, one per node" if spread.one_worker_per_node else nodes
