# SPDX-License-Identifier: Apache-2.0
"""Placement of gangs: all workers or none.

Workers are identical, so whether the gang fits is a sum: each node has slots for a number of
workers (feasibility.worker_slots), at most one with `one_worker_per_node`, those of its best clique
with `same_clique`, and the `max_nodes` largest must add up to the gang. The choice of devices on a
node cannot spoil the sum: each choice takes the slot of one worker. So a plan is found exactly when
there is one, and the policy is free to choose: workers are placed one by one on an overlay of the
cluster, each on the best node from which the rest can still be placed. Trying several node orders
was rejected: it costs more and misses plans under `max_nodes`. Of these nodes those with slots on
healthy devices go first: a worker there takes one slot as well.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from gpupack_devices.units import Holder, NodeName
from gpupack_placement.arrays import BoolArray, FloatArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.decide import best_row, decide, place, scores_of
from gpupack_placement.devices import tightest_clique
from gpupack_placement.feasibility import (
    eligible_devices,
    fresh_slots,
    idle_devices,
    units_of,
    worker_slots,
)
from gpupack_placement.nearest import nearest_gang
from gpupack_placement.placement import Placement
from gpupack_placement.policies.policy import Policy
from gpupack_placement.reasons import Refusal, count_text, request_text
from gpupack_placement.refusals import most_frequent_reason, refusal
from gpupack_placement.request import Gang, Request, Spread
from gpupack_placement.serving import with_healthy_only


def plan_gang(
    cluster: Cluster,
    gang: Gang,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> tuple[Placement, ...] | Refusal:
    """Return the placement of each worker, by its index; the given cluster is not changed."""
    names = None if candidates is None else tuple(candidates)
    among = cluster.among(names)
    slots = _slots_by_row(cluster, gang) * among
    fitting = min(_max_workers(slots, gang.spread.node_limit), gang.workers)
    plan = _Plan(cluster.overlay(), gang, policy, slots, workers=fitting)
    placements = tuple(plan.next_worker() for _ in range(fitting))
    if fitting == gang.workers:
        return by_node(placements)
    refused = refusal(
        cluster,
        gang.request,
        candidates=names,
        gang=_missing(cluster, gang, fitting),
        never=never_fits(cluster, gang),
        nearest=nearest_gang(gang.request, lambda less: _would_fit(cluster, gang, less, among)),
    )
    limit = most_frequent_reason(plan.cluster, gang.request, candidates=names)
    return dataclasses.replace(refused, placed=fitting, limit=limit)


def why_not(cluster: Cluster, gang: Gang, policy: Policy) -> Refusal | None:
    """Return why the gang does not fit; None: it fits."""
    alone = gang.workers == 1 and not gang.spread.same_clique
    answer = decide(cluster, gang.request, policy) if alone else plan_gang(cluster, gang, policy)
    return answer if isinstance(answer, Refusal) else None


def choose_gang(
    cluster: Cluster,
    gang: Gang,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> tuple[Placement, ...] | None:
    """Place a gang as `plan_gang` does, without the reason of a refusal.

    The reason costs several times as much as the plan.
    """
    slots = _slots_by_row(cluster, gang) * cluster.among(candidates)
    if _max_workers(slots, gang.spread.node_limit) < gang.workers:
        return None
    plan = _Plan(cluster.overlay(), gang, policy, slots, workers=gang.workers)
    return by_node([plan.next_worker() for _ in range(gang.workers)])


def by_node(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """Order a gang's placements so that workers of one node have consecutive indices.

    Workers are alike, so any of them may have any place. Programs assume that consecutive ranks are
    close: tensor parallelism and hierarchical collectives group them.
    """
    found = tuple(placements)
    first = {each.node: number for number, each in reversed(list(enumerate(found)))}
    return tuple(sorted(found, key=lambda each: first[each.node]))


class _Plan:
    """A plan that places as many workers as fit on its own overlay of the cluster.

    Invariant: the nodes in use, together with the largest of the nodes that may still be added,
    have slots for all workers.
    """

    def __init__(
        self, cluster: Cluster, gang: Gang, policy: Policy, slots: IntArray, *, workers: int
    ) -> None:
        self.cluster = cluster
        self._request, self._policy, self._gang = gang.request, policy, gang
        self._max_nodes, self._workers = gang.spread.node_limit, workers
        self._same_clique = gang.spread.same_clique
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

    def next_worker(self) -> Placement:
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
        self.cluster.take(Holder(f"planned worker {self._placed}"), placement)
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
        room = _slots_by_row(self.cluster, dataclasses.replace(self._gang, request=sound)) * (
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
        """Return the devices of the clique that takes the whole gang."""
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


def _slots_by_row(cluster: Cluster, gang: Gang) -> IntArray:
    """Return the number of workers that fit, per row."""
    slots = worker_slots(cluster, gang.request, same_clique=gang.spread.same_clique)
    return _limited(slots, gang)


def _limited(slots: IntArray, gang: Gang) -> IntArray:
    """Limit slots to the gang's workers, which keeps sums small, or to one per node."""
    return np.minimum(slots, 1 if gang.spread.one_worker_per_node else gang.workers)


def _max_workers(room: IntArray, nodes: int | None) -> int:
    """Return how many workers the largest `nodes` rows take (None: all rows)."""
    if nodes is None or nodes >= len(room):
        return int(room.sum())
    return int(np.partition(room, len(room) - nodes)[len(room) - nodes :].sum()) if nodes else 0


def _would_fit(cluster: Cluster, gang: Gang, request: Request, among: BoolArray) -> bool:
    """Tell whether the gang would fit with this request instead."""
    slots = fresh_slots(cluster, request, same_clique=gang.spread.same_clique)
    return _max_workers(_limited(slots, gang) * among, gang.spread.node_limit) >= gang.workers


def never_fits(cluster: Cluster, gang: Gang) -> bool:
    """Tell whether the gang would not fit on the empty cluster either.

    An empty inventory proves nothing: nodes may be about to report.
    """
    return len(cluster) > 0 and not has_slots(cluster.emptied(), gang)


def has_slots(cluster: Cluster, gang: Gang) -> bool:
    """Tell whether as many workers fit as the gang has; necessary for a plan, not sufficient."""
    room = _slots_by_row(cluster, gang)
    return _max_workers(room, gang.spread.node_limit) >= gang.workers


def _missing(cluster: Cluster, gang: Gang, fitting: int) -> str:
    """Describe the request, how many workers fit, and how many GPUs are missing."""
    workers = count_text(gang.workers, "worker")
    each = f"{request_text(gang.request)}{_spread_text(gang.spread)}"
    missing = _missing_devices(cluster, gang)
    fit = "could ever fit" if cluster.is_emptied else "fit now"
    return f"gang of {workers} × {each}: {fitting} of {workers} {fit}{missing}"  # noqa: RUF001


def _missing_devices(cluster: Cluster, gang: Gang) -> str:
    if gang.request.share is not None or not gang.request.devices:
        return ""
    noun = "MIG slice" if gang.request.slices else "GPU"
    idle = idle_devices(cluster, gang.request)
    asked, free = gang.workers * gang.request.devices, int(idle.sum())
    nodes = count_text(int((idle > 0).sum()), "node")
    which = noun if cluster.is_emptied else f"free {noun}"
    stock = f"{count_text(free, which)} in {nodes}, {asked} requested"
    if free >= asked:
        return f"; enough {noun}s but not where they are needed ({stock})"
    missing = asked - free
    return f"; {count_text(missing, noun)} {'is' if missing == 1 else 'are'} missing ({stock})"


def _spread_text(spread: Spread) -> str:
    nodes = (
        "" if spread.max_nodes is None else f" on at most {count_text(spread.max_nodes, 'node')}"
    )
    nodes = " in one NVLink clique" if spread.same_clique else nodes
    return f"{nodes}, one per node" if spread.one_worker_per_node else nodes
