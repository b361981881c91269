# SPDX-License-Identifier: Apache-2.0
"""Nodes, jobs and policy as tables, where the compiled loop can do with them."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from gpupack_core import Cluster, Gang, Node, Policy, Request
from gpupack_core.fragmentation import Fragmentation, accepts
from gpupack_core.model import Health
from gpupack_core.outlook import Mix
from gpupack_core.policies.best_fit import BestFit
from gpupack_core.policies.bid_price import BidPrice
from gpupack_core.policies.fgd import Fgd
from gpupack_core.pricing.stranding import Stranding
from gpupack_core.request import Interconnect
from gpupack_simulator.compiled.tables import (
    BEST_FIT,
    BID_PRICE,
    FGD,
    NOBODY,
    WAITS,
    Ends,
    Jobs,
    Lanes,
    Nodes,
    Prices,
    Samples,
)
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.job import ANYWHERE, Job

DISCIPLINES = {"drop", "fifo-skip"}
POLICIES = {BestFit, BidPrice, Fgd}
_MAX_DEVICES = 62
"""Which of them a job holds is one whole number."""
_NEVER = -1
"""The version of no row."""


def can_do(nodes: Sequence[Node], jobs: Sequence[Job], policy: Policy, settings: Settings) -> bool:
    """Whether it is a run of the kind that the loop was written for."""
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
        and all(map(_plain_node, nodes))
        and len({resource for node in nodes for resource in node.resources}) <= 1
        and all(_plain_job(job) for job in jobs)
        and _plain_requests({id(job.request): job.request for job in jobs}, nodes)
    )


def _plain_node(node: Node) -> bool:
    """Ready for everybody, with GPUs that differ in nothing but how full they are."""
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


def _plain_job(job: Job) -> bool:
    return job.workers == 1 and job.spread == ANYWHERE


def _plain_requests(requests: Mapping[int, Request], nodes: Sequence[Node]) -> bool:
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
    """An empty cluster's."""
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


def lanes_of(gangs: Sequence[Gang], cluster: Cluster, never: Sequence[str]) -> Lanes:
    """One for each gang; `never`: why it fits not even the empty cluster, or empty."""
    requests, rows = [gang.request for gang in gangs], len(cluster.arrays.present)
    kinds = cluster.arrays.kinds.values
    shape = len(requests), rows
    return Lanes(
        gpus=_ints(request.gpus or 0 for request in requests),
        share=_ints(request.share.milli if request.share else 0 for request in requests),
        cpu=_ints(request.cpu for request in requests),
        memory=_ints(request.memory for request in requests),
        accepts=np.array(
            [[*(_accepts(r, kind) for kind in kinds), not r.needs_gpu] for r in requests], np.bool_
        ).reshape(len(requests), len(kinds) + 1),
        never=np.array([bool(reason) for reason in never], np.bool_),
        first=np.full(len(requests), NOBODY),
        last=np.full(len(requests), NOBODY),
        closed=np.zeros(len(requests), np.bool_),
        seen=np.full(shape, _NEVER, np.int64),
        score=np.zeros(shape, np.int64),
    )


def _accepts(request: Request, kind: Any) -> bool:
    return not request.needs_gpu or accepts(request, kind)


def forget_scores(lanes: Lanes) -> None:
    """The policy is another."""
    lanes.seen[:] = _NEVER


def jobs_of(jobs: Sequence[Job], lane_of: Mapping[int, int]) -> Jobs:
    """In the order of arrival; `lane_of`: by the identity of the request."""
    number = len(jobs)
    return Jobs(
        lane=_ints(lane_of[id(job.request)] for job in jobs),
        arrival=np.array([job.arrival for job in jobs], np.float64),
        duration=np.array([job.duration for job in jobs], np.float64),
        state=np.full(number, WAITS),
        started=np.full(number, np.nan),
        ended=np.full(number, np.nan),
        node=np.full(number, NOBODY),
        devices=np.zeros(number, np.int64),
        behind=np.full(number, NOBODY),
        finished_before=np.zeros(number, np.int64),
    )


def ends_of(jobs: Sequence[Job]) -> Ends:
    """Room for all of them."""
    number = len(jobs)
    return Ends(np.zeros(number), np.zeros(number, np.int64), np.zeros(number, np.int64))


def samples_of(jobs: Sequence[Job], settings: Settings) -> Samples:
    """Room for as many as there can be: no more than instants at which something happens."""
    every, end = settings.sampling.every, settings.until
    regular = 0 if every == inf else round(min(end, 1e9 * every) / every) + 2
    number = regular + (2 * len(jobs) if settings.sampling.demand_step < inf else 0)
    return Samples(np.zeros(number), *(np.zeros(number, np.int64) for _ in range(4)))


def prices_of(policy: Policy, cluster: Cluster) -> Prices:
    """By what the policy has been told."""
    nothing, view = np.zeros(0, np.int64), cluster.arrays
    if isinstance(policy, BidPrice):
        measure, thresholds, number = policy.fragmentation, nothing, BID_PRICE
    elif isinstance(policy, Fgd) and policy.fragmentation.total:
        measure, thresholds, number = policy.fragmentation, policy.thresholds, FGD
    else:
        measure, thresholds, number = Fragmentation(Mix()), nothing, BEST_FIT
    measure.meet(view.kinds.values, view.shape[1])
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
