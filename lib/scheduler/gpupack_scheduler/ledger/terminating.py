# SPDX-License-Identifier: Apache-2.0
"""Pods that are gone from the API and whose processes still hold GPUs.

A pod that was deleted by force is gone from the API at once; its containers are not. The node's
agent sees both, and lists such pods in the status of its GPUNode until their processes are gone.
Between the deletion and that report their GPUs look free here. The agent refuses to start a pod
that is bound in this time until the old processes are gone.
"""

import dataclasses

from gpupack_crds.gpunode import GpuHolder
from gpupack_crds.kinds import GpuNode
from gpupack_placement import Placement
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.requests.needs import NO_NEEDS


@dataclasses.dataclass(frozen=True, slots=True)
class TerminatingHolder:
    """One lingering pod and the GPUs that it holds."""

    namespace: str
    name: str
    placement: Placement


def terminating_holders(gpus: GpuNode) -> dict[str, TerminatingHolder]:
    """Return the lingering pods by UID; none on observed nodes, where holders are all pods."""
    if gpus.status.mode != "owned":
        return {}
    node = gpus.metadata.name
    return {
        holder.uid or f"{holder.namespace}/{holder.name}": TerminatingHolder(
            holder.namespace, holder.name, _placement(node, holder)
        )
        for holder in gpus.status.holders
    }


def _placement(node: str, holder: GpuHolder) -> Placement:
    """Return the devices without CPU and memory, which are unknown, and without a pod.

    The kubelet no longer counts the pod among its pods.
    """
    held = claims.believed(holder.devices)
    return claims.placement(node, held, needs=NO_NEEDS, pods=0)
