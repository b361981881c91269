# SPDX-License-Identifier: Apache-2.0
"""The check of nodes that the scheduler rejects, by the condition of their GPUNodes."""

from collections.abc import Iterator

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped
from gpupack_crds.gpunode import INVENTORY_REJECTED


def rejected(seen: ClusterState) -> Iterator[Finding]:
    """Yield nodes without work because their inventory contradicts itself or another node's."""
    check = "inventories"
    if seen.gpu_nodes.refused:
        yield skipped(check, seen.gpu_nodes.refused)
        return
    problems = [
        (node.metadata.name, condition.message)
        for node in seen.gpu_nodes.items
        for condition in node.status.conditions
        if condition.type == INVENTORY_REJECTED and condition.status == "True"
    ]
    for name, message in problems:
        yield failed(
            check,
            f"{name}: {message}",
            fix="if one of the hosts no longer exists, delete its Node; else see the logs of both "
            "agents (docs/edges.md)",
        )
    if not problems:
        yield ok(check, "no inventory contradicts another")
