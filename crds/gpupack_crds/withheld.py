# SPDX-License-Identifier: Apache-2.0
"""Resources of other device plugins that no node offers, since gpupack hands out those GPUs.

A pod that requests one, from the default scheduler or from gpupack's, stays Pending. gpupack's
scheduler publishes the names in a ConfigMap, by which an admission policy warns; `gpupack doctor`
reports such pods.
"""

from collections.abc import Iterable
from typing import Final

from gpupack_crds import names, quantity
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects

KEY: Final = "resources"
"""Key of the ConfigMap's data: names, separated by spaces."""

NVIDIA: Final = ("nvidia.com/gpu",)
"""Names with which NVIDIA's plugin hands out GPUs that gpupack can hand out instead."""


def withheld(nodes: Iterable[objects.Node], gpu_nodes: Iterable[GpuNode]) -> tuple[str, ...]:
    """Return the resources that no node offers while gpupack hands out GPUs itself."""
    if not any(each.status.mode == "owned" and each.status.devices for each in gpu_nodes):
        return ()
    offered = {
        name
        for node in nodes
        for name in NVIDIA
        if quantity.count(node.status.allocatable.get(name, 0)) > 0
    }
    return tuple(name for name in NVIDIA if name not in offered)


def fix(resource: str, number: str, *, scheduler: str = "") -> str:
    """Return the lines to change; `scheduler` is the pod's scheduler."""
    named = scheduler == names.SCHEDULER_NAME
    first = "" if named else f"schedulerName: {names.SCHEDULER_NAME}, and "
    return (
        f"in the pod's spec write {first}{names.GPU}: {number} in place of {resource}: {number}, "
        "in limits and, if it is there, in requests"
    )
