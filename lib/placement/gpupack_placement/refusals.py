# SPDX-License-Identifier: Apache-2.0
"""Construction of refusals: one reason per node, counted, with the most that any node has."""

from collections.abc import Iterator, Sequence

import numpy as np

from gpupack_devices.models import nearest_models
from gpupack_devices.units import NodeName, memory_text
from gpupack_placement.arrays import ABSENT, BoolArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.extended import amount_text
from gpupack_placement.feasibility import Check, reasons, worker_slots
from gpupack_placement.miss import NearestMiss
from gpupack_placement.nearest import nearest_node
from gpupack_placement.reasons import Count, Reason, Refusal
from gpupack_placement.request import Request
from gpupack_placement.serving import serving_devices


def refusal(
    cluster: Cluster,
    request: Request,
    *,
    candidates: Sequence[NodeName] | None,
    never: bool,
    gang: str = "",
    nearest: NearestMiss | None = None,
) -> Refusal:
    """Return why none of the candidates takes one (more) worker.

    `gang` and `nearest` are as in Refusal; the nearest miss of one worker is found here. The
    cluster is the observed one, without workers of the gang.
    """
    checks = [*reasons(cluster, request), _spread(cluster)]
    among = cluster.among(candidates)
    first = _first_failing(checks, among)
    counts = [
        _count(cluster, request, check, first == number) for number, check in enumerate(checks)
    ]
    fitting_nodes = counts.pop().nodes if gang else 0
    unknown = 0 if candidates is None else sum(name not in cluster for name in set(candidates))
    counts.append(Count(Reason.NODE_UNKNOWN, unknown))
    total = fitting_nodes + sum(count.nodes for count in counts)
    nearest = nearest if gang else nearest_node(cluster, request, among)
    return Refusal(
        request,
        ordered(counts),
        total,
        never=never,
        gang=gang,
        fitting_nodes=fitting_nodes,
        nearest=nearest,
        is_of_empty_cluster=cluster.is_emptied,
    )


def most_frequent_reason(
    cluster: Cluster, request: Request, *, candidates: Sequence[NodeName] | None
) -> Reason | None:
    """Return the most frequent reason; None: there are no nodes."""
    checks = [*reasons(cluster, request), _spread(cluster)]
    first = _first_failing(checks, cluster.among(candidates))
    counts = [Count(each.reason, int((first == at).sum())) for at, each in enumerate(checks)]
    found = ordered(counts)
    return found[0].reason if found else None


def ordered(counts: Sequence[Count]) -> tuple[Count, ...]:
    """Return the counts that are not 0, most frequent first, then by name."""
    found = (count for count in counts if count.nodes)
    return tuple(sorted(found, key=lambda count: (-count.nodes, count.reason)))


def never_fits(cluster: Cluster, request: Request) -> bool:
    """Tell whether the request would not fit on the empty cluster either.

    An empty inventory proves nothing: nodes may be about to report.
    """
    if not len(cluster):
        return False
    return int(worker_slots(cluster.emptied(), request).max()) < 1


def node_reasons(
    cluster: Cluster, request: Request, *, candidates: Sequence[NodeName] | None
) -> dict[NodeName, Reason]:
    """Return each candidate that takes no worker, with the first check that it fails."""
    checks = reasons(cluster, request)
    first = _first_failing(checks, cluster.among(candidates))
    found = {
        node.name: checks[number].reason
        for node, number in zip(cluster.row_nodes, first.tolist(), strict=True)
        if node is not None and number >= 0
    }
    unknown = (name for name in candidates or () if name not in cluster)
    return found | dict.fromkeys(unknown, Reason.NODE_UNKNOWN)


def _spread(cluster: Cluster) -> Check:
    """Return the last check: a row with room that is refused fails by the gang's spread rule."""
    return Check(Reason.SPREAD_LIMIT, cluster.arrays.present)


def _first_failing(checks: Sequence[Check], among: BoolArray) -> IntArray:
    """Return, per row, the number of its first failing check, or -1."""
    first = np.full(len(among), -1)
    for number, check in enumerate(checks):
        first[(first < 0) & check.fails & among] = number
    return first


def _count(cluster: Cluster, request: Request, check: Check, rows: BoolArray) -> Count:
    nodes = int(rows.sum())
    nearest = None if check.nearest is None or not nodes else int(check.nearest[rows].max())
    there: tuple[str, ...] = ()
    if check.reason is Reason.RESOURCE_NAME_MISMATCH:
        numbers = set(cluster.arrays.resource[rows].ravel().tolist()) - {ABSENT}
        there = tuple(sorted(cluster.resources.values[number] for number in numbers))
    elif check.reason is Reason.MODEL_MISMATCH:
        a, serving = cluster.arrays, serving_devices(cluster, request)
        kinds = a.kind if serving is None else np.where(serving, a.kind, ABSENT)
        numbers = set(kinds[rows].ravel().tolist()) - {ABSENT}
        there = nearest_models(request.models, (a.kinds.values[number] for number in numbers))
    elif check.reason is Reason.SHARE_DOES_NOT_FIT:
        if request.share is not None and nearest is not None and nearest >= request.share.milli:
            there = (memory_text(int(check.of_each[0][rows].max())),)
    elif nodes and check.of_each:
        there = tuple(_lacking(request, check, rows, of_empty=cluster.is_emptied))
    return Count(check.reason, nodes, nearest, there)


def _lacking(request: Request, check: Check, rows: BoolArray, *, of_empty: bool) -> Iterator[str]:
    """Yield the extended resources that some of these rows lack, with the most that any row has."""
    for (name, amount), there in zip(request.extended, check.of_each, strict=True):
        have = there[rows]
        if int(have.min()) < amount:
            largest = amount_text(name, int(have.max()))
            most = check.reason.nearest_text(largest, of_empty=of_empty)
            yield f"{name}: {amount_text(name, amount)} ({most})"
