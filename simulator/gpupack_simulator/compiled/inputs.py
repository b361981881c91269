# SPDX-License-Identifier: Apache-2.0
"""Nodes, jobs and policy as tables, for runs that the compiled loop supports."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from gpupack_placement import Cluster, Gang, Node, Policy, Request
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.fragmentation import Fragmentation, accepts
from gpupack_placement.model import Health
from gpupack_placement.policies.best_fit import BestFit
from gpupack_placement.policies.bid_price import BidPrice
from gpupack_placement.policies.fgd import Fgd
from gpupack_placement.pricing.stranding import Stranding
from gpupack_placement.request import Interconnect
from gpupack_simulator.compiled.tables import (
    BEST_FIT,
    BID_PRICE,
    FGD,
    NO_HOLDER,
    WAITS,
    Ends,
    Jobs,
    Nodes,
    Prices,
    RequestClasses,
    Samples,
)
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.job import ANYWHERE, Job

DISCIPLINES = {"drop", "fifo-skip"}
POLICIES = {BestFit, BidPrice, Fgd}
_MAX_DEVICES = 62
"""Maximum number of devices of a node: one whole number holds the devices of a job."""
_NEVER = -1
"""A version that no row has."""


def is_supported(
    nodes: Sequence[Node], jobs: Sequence[Job], policy: Policy, settings: Settings
) -> bool:
    """Tell whether the compiled loop supports this run."""
    sampling = settings.sampling
    return (
        type(policy) in POLICIES
        and settings.discipline in DISCIPLINES
        and settings.queue is None
        and settings.quotas is None
        and not (settings.breakdowns or settings.maintenance or settings.presence)
        and not settings.occupancy
        and not (sampling.each_instant or sampling.fragmentation)
        and not (sampling.causes or sampling.by_node)
        and all(map(_is_supported_node, nodes))
        and len({resource for node in nodes for resource in node.resources}) <= 1
        and all(_is_supported_job(job) for job in jobs)
        and _are_supported_requests({id(job.request): job.request for job in jobs}, nodes)
    )


def _is_supported_node(node: Node) -> bool:
    """Tell whether the node is open to all jobs and its GPUs differ only in their free capacity."""
    alike = {(d.model, d.memory, d.health, d.clique, d.numa_node) for d in node.devices}
    return (
        node.ready
        and not node.cordoned
        and not node.taints
        and node.pods is None
        and len(node.devices) <= _MAX_DEVICES
        and len(alike) <= 1
        and all((health, clique) == (Health.HEALTHY, None) for _, _, health, clique, _ in alike)
        and not any(device.is_slice for device in node.devices)
    )


def _is_supported_job(job: Job) -> bool:
    return job.workers == 1 and job.spread == ANYWHERE


def _are_supported_requests(requests: Mapping[int, Request], nodes: Sequence[Node]) -> bool:
    resources = {resource for node in nodes for resource in node.resources}
    return all(
        request.slices is None
        and not request.extended
        and request.selector is None
        and request.interconnect is Interconnect.ANY
        and not (request.share is not None and request.share.memory)
        and resources <= {request.resource}
        for request in requests.values()
    )


def nodes_of(cluster: Cluster) -> Nodes:
    """Return the table of nodes of an empty cluster."""
    a = cluster.arrays
    free = np.ascontiguousarray(a.free_milli, np.int64)
    return Nodes(
        free_milli=free,
        free_shares=np.ascontiguousarray(a.free_shares, np.int64),
        kind=a.node_kind.astype(np.int64),
        free_cpu=a.free_cpu.astype(np.int64),
        free_memory=a.free_ram.astype(np.int64),
        free_gpu_milli=a.free_gpu_milli.astype(np.int64),
        idle=a.idle_gpus.astype(np.int64),
        largest=(free * (a.free_shares > 0)).max(axis=1, initial=0),
        order=a.order.astype(np.int64),
        version=np.zeros(len(free), np.int64),
    )


def request_classes_of(
    gangs: Sequence[Gang], cluster: Cluster, never: Sequence[str]
) -> RequestClasses:
    """Return one class per gang; `never`: why it does not fit on the empty cluster, or empty."""
    requests, rows = [gang.request for gang in gangs], len(cluster.arrays.present)
    kinds = cluster.arrays.kinds.values
    shape = len(requests), rows
    return RequestClasses(
        gpus=_ints(request.gpus or 0 for request in requests),
        share=_ints(request.share.milli if request.share else 0 for request in requests),
        cpu=_ints(request.cpu for request in requests),
        memory=_ints(request.memory for request in requests),
        accepts=np.array(
            [[*(_accepts(r, kind) for kind in kinds), not r.needs_gpu] for r in requests], np.bool_
        ).reshape(len(requests), len(kinds) + 1),
        never=np.array([bool(reason) for reason in never], np.bool_),
        first=np.full(len(requests), NO_HOLDER),
        last=np.full(len(requests), NO_HOLDER),
        closed=np.zeros(len(requests), np.bool_),
        seen=np.full(shape, _NEVER, np.int64),
        score=np.zeros(shape, np.int64),
    )


def _accepts(request: Request, kind: Any) -> bool:
    return not request.needs_gpu or accepts(request, kind)


def forget_scores(classes: RequestClasses) -> None:
    """Forget all scores, since the policy changed."""
    classes.seen[:] = _NEVER


def jobs_of(jobs: Sequence[Job], class_of: Mapping[int, int]) -> Jobs:
    """Return the table of jobs by arrival; `class_of`: classes by the identity of the request."""
    number = len(jobs)
    return Jobs(
        request_class=_ints(class_of[id(job.request)] for job in jobs),
        arrival=np.array([job.arrival for job in jobs], np.float64),
        duration=np.array([job.duration for job in jobs], np.float64),
        state=np.full(number, WAITS),
        started=np.full(number, np.nan),
        ended=np.full(number, np.nan),
        node=np.full(number, NO_HOLDER),
        devices=np.zeros(number, np.int64),
        behind=np.full(number, NO_HOLDER),
        finished_before=np.zeros(number, np.int64),
    )


def ends_of(jobs: Sequence[Job]) -> Ends:
    """Return an empty heap with room for the ends of all jobs."""
    number = len(jobs)
    return Ends(np.zeros(number), np.zeros(number, np.int64), np.zeros(number, np.int64))


def samples_of(jobs: Sequence[Job], settings: Settings) -> Samples:
    """Return a table with room for all samples: at most one for each instant with an event."""
    every, end = settings.sampling.every, settings.until
    regular = 0 if every == inf else round(min(end, 1e9 * every) / every) + 2
    number = regular + (2 * len(jobs) if settings.sampling.demand_step < inf else 0)
    return Samples(np.zeros(number), *(np.zeros(number, np.int64) for _ in range(4)))


def prices_of(policy: Policy, cluster: Cluster) -> Prices:
    """Return the prices of the policy in its present state."""
    nothing, view = np.zeros(0, np.int64), cluster.arrays
    if isinstance(policy, BidPrice):
        measure, thresholds, number = policy.fragmentation, nothing, BID_PRICE
    elif isinstance(policy, Fgd) and policy.fragmentation.total:
        measure, thresholds, number = policy.fragmentation, policy.thresholds, FGD
    else:
        measure, thresholds, number = Fragmentation(RequestMix()), nothing, BEST_FIT
    measure.extend_tables(view.kinds.values, view.shape[1])
    bids = policy if isinstance(policy, BidPrice) else BidPrice()
    stranded: Stranding = bids.stranding
    return Prices(
        number,
        *measure.tables,
        measure.total,
        thresholds,
        bids.worth,
        *stranded.table,
        bids.in_use,
        bids.settled,
        bids.prices(view),
    )


def _ints(values: Any) -> Any:
    return np.array(list(values), np.int64)
