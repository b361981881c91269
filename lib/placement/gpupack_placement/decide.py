# SPDX-License-Identifier: Apache-2.0
"""Placement of one worker: its node and devices, or the reason why there are none.

    worker_slots ─► nodes with room for one ─► policy.score ─► largest, ties to the first node in
    the cluster's fixed order ─► devices within the node

Degraded devices serve only where no others could: nodes with room on healthy ones go first.

Decisions are deterministic and change nothing: the caller takes the placement.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan

import numpy as np

from gpupack_devices.units import WHOLE_GPU, NodeName
from gpupack_placement.arrays import Arrays, BoolArray, FloatArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.devices import choose_devices
from gpupack_placement.errors import InvalidScores
from gpupack_placement.feasibility import eligible_devices, worker_slots
from gpupack_placement.miss import NearestMiss
from gpupack_placement.model import Device
from gpupack_placement.nearest import nearest_rows
from gpupack_placement.placement import Grant, Placement
from gpupack_placement.policies.policy import Policy
from gpupack_placement.reasons import Reason, Refusal
from gpupack_placement.refusals import never_fits, node_reasons, refusal
from gpupack_placement.request import Request
from gpupack_placement.serving import view_for, with_healthy_only

_FEW = 64
_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node that fits, with its score (the larger, the better; scale is the policy's)."""

    node: NodeName
    score: float


def decide(
    cluster: Cluster,
    request: Request,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> Placement | Refusal:
    """Place one worker on the best of the candidates (None: of all nodes)."""
    names = None if candidates is None else tuple(candidates)
    placement = choose(cluster, request, policy, candidates=names)
    if placement is not None:
        return placement
    return refusal(cluster, request, candidates=names, never=never_fits(cluster, request))


def choose(
    cluster: Cluster,
    request: Request,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> Placement | None:
    """Place one worker as `decide` does, without the reason of a refusal.

    The reason costs several times as much as the decision.
    """
    names = None if candidates is None else tuple(candidates)
    sound = with_healthy_only(cluster, request)
    placement = None if sound is None else _choose(cluster, sound, policy, names)
    return placement or _choose(cluster, request, policy, names)


def rank(
    cluster: Cluster,
    request: Request,
    policy: Policy,
    *,
    candidates: Iterable[NodeName] | None = None,
) -> tuple[Ranked, ...]:
    """Return the candidates that fit, best first, in the order in which decide would take them."""
    rows = np.flatnonzero(worker_slots(cluster, request))
    scores = scores_of(cluster, request, policy, rows)
    if candidates is not None:
        among = cluster.among(candidates)[rows]
        rows, scores = rows[among], scores[among]
    sound = with_healthy_only(cluster, request)
    last = np.zeros(len(rows)) if sound is None else worker_slots(cluster, sound)[rows] < 1
    best_first = np.lexsort((cluster.arrays.order[rows], -scores, last))
    ordered = zip(rows[best_first].tolist(), scores[best_first].tolist(), strict=True)
    return tuple(Ranked(cluster.name_at(row), score) for row, score in ordered)


def _choose(
    cluster: Cluster, request: Request, policy: Policy, names: tuple[NodeName, ...] | None
) -> Placement | None:
    rows = np.flatnonzero(worker_slots(cluster, request))
    scores = scores_of(cluster, request, policy, rows)
    row = _best_candidate(cluster, rows, scores, names)
    return None if row is None else place(cluster, row, request, policy)


def explain(
    cluster: Cluster, request: Request, *, candidates: Iterable[NodeName] | None = None
) -> dict[NodeName, Reason]:
    """Return the one reason for each candidate that does not fit."""
    names = None if candidates is None else tuple(candidates)
    return node_reasons(cluster, request, candidates=names)


def nearly(
    cluster: Cluster, request: Request, *, candidates: Iterable[NodeName] | None = None
) -> tuple[NearestMiss | None, frozenset[NodeName]]:
    """Return the nearest miss of a request that fits nowhere, and the nodes that would fit."""
    found = nearest_rows(cluster, request, cluster.among(candidates))
    if found is None:
        return None, frozenset()
    miss, rows = found
    return miss, frozenset(map(cluster.name_at, rows.tolist()))


def scores_of(cluster: Cluster, request: Request, policy: Policy, rows: IntArray) -> FloatArray:
    """Return one score per row.

    The policy is not called for zero rows: where no node has room there may be no device at all,
    and a policy that looks for the fullest one would fail.

    Raises:
        InvalidScores: the policy's answer has another shape or is not numeric.
    """
    if not len(rows):
        return np.zeros(0)
    scores = policy.score(view_for(cluster, request), request, rows)
    if getattr(scores, "shape", None) != rows.shape or scores.dtype.kind not in "fiu":
        raise InvalidScores(
            f"policy {policy.name} scores {len(rows)} nodes by {scores!r:.60}; give an array of as "
            "many numbers"
        )
    if isnan(scores.max()):
        raise InvalidScores(f"policy {policy.name} gives a node the score nan; give a number")
    return scores


def best_row(arrays: Arrays, rows: IntArray, scores: FloatArray) -> int:
    """Return the row with the largest score; ties go to the first in the cluster's order."""
    equals = rows[scores == scores.max()]
    return int(equals[arrays.order[equals].argmin()])


def place(
    cluster: Cluster,
    row: int,
    request: Request,
    policy: Policy,
    *,
    among: BoolArray | None = None,
) -> Placement:
    """Return the placement on a row with room; `among`: a subset of its devices that has room."""
    devices = cluster.devices_at(row)
    eligible = eligible_devices(cluster, request, at=row)
    if among is not None:
        eligible = among if eligible is None else eligible & among
    columns = choose_devices(view_for(cluster, request), row, request, eligible, policy)
    grants = tuple(grant_of(devices[column], request) for column in columns)
    return Placement(
        cluster.name_at(row), grants, request.cpu, request.memory, extended=request.extended
    )


def grant_of(device: Device, request: Request) -> Grant:
    """Return what a worker of the request holds of a device."""
    if request.share is None:
        return Grant(device.uuid, WHOLE_GPU, device.memory)
    return Grant(device.uuid, request.share.milli, request.share.memory, request.share.group)


def _best_candidate(
    cluster: Cluster, rows: IntArray, scores: FloatArray, names: tuple[NodeName, ...] | None
) -> int | None:
    """Return the best of the rows whose node is one of the names.

    The names are mostly those of all nodes, and a look-up of thousands of names costs ten times as
    much as the rest of a decision. So the few best rows are checked first.
    """
    looks = 0 if names is None or len(names) < _FEW else _LOOKS
    for _ in range(min(looks, len(rows))):
        row = best_row(cluster.arrays, rows, scores)
        if names is None or cluster.name_at(row) in names:
            return row
        rows, scores = rows[rows != row], scores[rows != row]
    if names is not None:
        named = cluster.among(names)[rows]
        rows, scores = rows[named], scores[named]
    return best_row(cluster.arrays, rows, scores) if len(rows) else None
