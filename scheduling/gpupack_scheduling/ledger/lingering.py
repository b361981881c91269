# SPDX-License-Identifier: Apache-2.0
"""Pods that the API does not know any more and whose processes still hold GPUs.

A force-deleted pod is gone from the API at once; its containers are not. The node's agent sees
both, and lists such pods in the status of its GPUNode until their processes are gone. Between the
deletion and that report their GPUs look free here: the agent refuses to start what is bound in
that moment, until the old processes are gone.
"""

import dataclasses

import gpupack_core as core
from gpupack_crds.gpunode import GpuHolder
from gpupack_crds.kinds import GpuNode
from gpupack_scheduling.asks.needs import NO_NEEDS
from gpupack_scheduling.ledger import claims


@dataclasses.dataclass(frozen=True, slots=True)
class Lingering:
    """One such pod, and what it holds."""

    namespace: str
    name: str
    placement: core.Placement


def lingering(gpus: GpuNode) -> dict[str, Lingering]:
    """Such pods, by UID. On observed nodes holders are all pods, and none is a claim."""
    if gpus.status.mode != "owned":
        return {}
    node = gpus.metadata.name
    return {
        holder.uid or f"{holder.namespace}/{holder.name}": Lingering(
            holder.namespace, holder.name, _placement(node, holder)
        )
        for holder in gpus.status.holders
    }


def _placement(node: str, holder: GpuHolder) -> core.Placement:
    """CPU and memory are not known, and the kubelet counts it among its pods no more."""
    held = claims.believed(holder.devices)
    return claims.placement(node, held, needs=NO_NEEDS, pods=0)
