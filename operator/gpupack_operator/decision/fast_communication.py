# SPDX-License-Identifier: Apache-2.0
"""Condition FastCommunication: whether workers whose GPUs NVLink connects use NVLink.

The placement and the GPUNodes show which workers could use it, and the workers' results show which
transports NCCL chose. Containers write results: these decide this condition and nothing else. The
condition is written with the results that it describes, and stays when GPUNodes change later.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpupack_crds import indices
from gpupack_crds.devices import WHOLE_PERCENT
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus, WorkerResult
from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_worker
from gpupack_crds.results import Communication
from gpupack_crds.worker_pods import shares_pods
from gpupack_operator.decision.conditions import Type, Writer, get
from gpupack_operator.decision.model import Observation
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.results import all_of

NVLINK: Final = "P2P/"
"""Prefix of NCCL's transports between GPUs that reach each other directly."""
SHARED_MEMORY: Final = "SHM"
"""NCCL's transport between processes of one host, and of no others."""
NOT_BY_NCCL: Final = frozenset({"gloo", "mpi"})
"""Backends that a job chooses instead of NCCL."""

_TRANSPORTS: Final = re.compile(
    r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*(,[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)*"
)


@dataclasses.dataclass(frozen=True, slots=True)
class NvlinkPeers:
    """Workers on one node whose GPUs belong to one NVLink clique.

    Attributes:
        node: the node's name.
        workers: the workers' indices.
        are_all: whether they are the whole gang.
    """

    node: str
    workers: tuple[int, ...]
    are_all: bool


@dataclasses.dataclass(frozen=True, slots=True)
class PeersReport:
    """Report of such workers.

    Attributes:
        peers: the workers.
        communication: that of the first worker that does not use NVLink; else of the first worker.
        uses_nvlink: whether all workers that report a transport use NVLink.
    """

    peers: NvlinkPeers
    communication: Communication
    uses_nvlink: bool


def with_condition(observation: Observation, status: GpuJobStatus, write: Writer) -> GpuJobStatus:
    """Write the condition if results have changed, or could not be judged before."""
    results = all_of(status)
    is_known = get(status, Type.FAST_COMMUNICATION) is not None
    if results == all_of(observation.job.status) and (
        is_known or not any(_results_with_transports(results))
    ):
        return status
    found = list(peers_reports(observation.job.spec, status, observation.cliques))
    slow = [each for each in found if not each.uses_nvlink]
    if slow:
        message = _describe_slow(slow, status)
        return write.set(
            status, Type.FAST_COMMUNICATION, "False", JobReason.NVLINK_NOT_USED, message
        )
    if found:
        message = f"workers of one NVLink clique use {_figure(found[0].communication)}"
        return write.set(status, Type.FAST_COMMUNICATION, "True", JobReason.NVLINK_USED, message)
    return write.without(status, Type.FAST_COMMUNICATION)


def peers_reports(
    spec: GpuJobSpec, status: GpuJobStatus, cliques: Mapping[str, Mapping[str, int]]
) -> Iterator[PeersReport]:
    """Yield the workers that could use NVLink and report what they use."""
    if spec.distributed is not None and spec.distributed.backend in NOT_BY_NCCL:
        return
    said = {each.worker: each.communication for each in _results_with_transports(all_of(status))}
    for peers in expected_peers(status.placement, cliques):
        of_peers = [found for index in peers.workers if (found := said.get(index)) is not None]
        slow = [each for each in of_peers if not _uses_nvlink(each, peers)]
        for each in (slow or of_peers)[:1]:
            yield PeersReport(peers, each, uses_nvlink=not slow)


def expected_peers(
    placement: Sequence[NodePlacement], cliques: Mapping[str, Mapping[str, int]]
) -> Iterator[NvlinkPeers]:
    """Yield the workers of each node on which several have whole GPUs of one clique."""
    whole = (each for each in placement if each.percent == WHOLE_PERCENT)
    in_order = sorted(by_worker(whole), key=lambda each: (each.node, each.worker))
    for node, group in itertools.groupby(in_order, key=lambda each: each.node):
        workers = tuple(group)
        if len(workers) > 1 and _is_one_clique(workers, cliques.get(node, {})):
            are_all = all(each.node == node for each in placement)
            yield NvlinkPeers(node, tuple(each.worker for each in workers), are_all)


def _is_one_clique(workers: Iterable[WorkerPlacement], cliques: Mapping[str, int]) -> bool:
    numbers = {cliques.get(device.uuid) for each in workers for device in each.devices}
    return len(numbers) == 1 and None not in numbers and all(each.devices for each in workers)


def _results_with_transports(results: Iterable[WorkerResult]) -> Iterator[WorkerResult]:
    """Yield results that name transports of GPUs; a container may write anything there."""
    for each in results:
        said = each.communication
        if said is not None and not each.simulated and _TRANSPORTS.fullmatch(said.transport):
            yield each


def _uses_nvlink(said: Communication, peers: NvlinkPeers) -> bool:
    """Tell whether workers of one node use NVLink; between nodes there are other transports.

    NCCL connects each process with one on its node.
    """
    transports = said.transport.split(",")
    if peers.are_all:
        return all(each.startswith(NVLINK) for each in transports)
    return SHARED_MEMORY not in transports and any(each.startswith(NVLINK) for each in transports)


def _describe_slow(slow: Sequence[PeersReport], status: GpuJobStatus) -> str:
    first = slow[0]
    more = len(slow) - 1
    others = f", as on {more} more {'node' if more == 1 else 'nodes'}," if more else ""
    why = "" if shares_pods(status) else "; a pod for each worker keeps NVLink from them"
    return (
        f"workers {indices.written(first.peers.workers)} on node {first.peers.node} have GPUs of "
        f"one NVLink clique{others} and use {_figure(first.communication)}{why}; "
        "see docs/communication.md"
    )


def _figure(said: Communication) -> str:
    return f"{said.transport} at {said.bus_gb_per_s:.3g} GB/s"
