# SPDX-License-Identifier: Apache-2.0
"""The check of nodes with GPUs and no agent, and of the taints that keep agents away."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped
from gpupack_cli.doctor.nodes import first_names
from gpupack_cli.doctor.parts import AGENT
from gpupack_cli.doctor.views import Toleration
from gpupack_crds import names
from gpupack_kubeclient import objects

GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    names.GPU,
)
GPU_LABELS: Final = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-1002.present",
)
"""Labels with the value true, of NVIDIA's GPU operator and of Node Feature Discovery."""
MODEL_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
)
"""Labels with which clouds name the model of a node's GPUs."""

REPELLING: Final = ("NoSchedule", "NoExecute")
KUBERNETES_PREFIX: Final = "node.kubernetes.io/"
"""Prefix of taints that follow a node's state; DaemonSets tolerate most of them."""
VALUES: Final = "agent.nodeSelector, agent.affinity, agent.excludedNodes and agent.tolerations"


def without_agent(seen: ClusterState) -> Iterator[Finding]:
    """Find nodes with GPUs, by other sources, for which no agent reports any."""
    check = "nodes without agent"
    if refused := seen.nodes.refused or seen.gpu_nodes.refused:
        yield skipped(check, refused)
        return
    reported = {each.metadata.name for each in seen.gpu_nodes.items}
    lacking = dict[tuple[objects.Taint, ...], list[str]]()
    others = list[str]()
    for node in seen.nodes.items:
        if node.metadata.name in reported:
            continue
        taints = repelling(node, seen)
        if has_gpus(node):
            lacking.setdefault(taints, []).append(node.metadata.name)
        elif taints:
            others.append(node.metadata.name)
    for taints, nodes in lacking.items():
        yield _lacking(check, nodes, taints)
    if not lacking:
        note = f"; taints keep the agent away from {first_names(others)}" if others else ""
        yield ok(check, f"an agent reports every node with known GPUs{note}")


def _lacking(check: str, nodes: list[str], taints: Sequence[objects.Taint]) -> Finding:
    message = f"{first_names(nodes)} have GPUs and no agent that reports them"
    if not taints:
        return failed(check, message, fix=f"check {VALUES}")
    said = ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints)
    entries = ", ".join(f"{{key: {key}, operator: Exists}}" for key in {t.key: 0 for t in taints})
    return failed(
        check,
        f"{message}: it does not tolerate {said}",
        fix=f"add {entries} to agent.tolerations, and keep its other entries (docs/nodes.md)",
    )


def has_gpus(node: objects.Node) -> bool:
    """Return whether a device plugin, a discovery or the cloud reports GPUs."""
    labels = node.metadata.labels
    served = any(str(node.status.allocatable.get(name, 0)) != "0" for name in GPU_RESOURCES)
    marked = any(labels.get(name) == "true" for name in GPU_LABELS)
    return served or marked or any(labels.get(name) for name in MODEL_LABELS)


def repelling(node: objects.Node, seen: ClusterState) -> tuple[objects.Taint, ...]:
    """Return the node's taints that keep the agent away; none where the DaemonSet is unknown."""
    agent = seen.daemon_sets.named(AGENT)
    if agent is None:
        return ()
    tolerations = agent.spec.template.spec.tolerations
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in REPELLING
        and not taint.key.startswith(KUBERNETES_PREFIX)
        and not any(tolerates(each, taint) for each in tolerations)
    )


def tolerates(toleration: Toleration, taint: objects.Taint) -> bool:
    """Return whether a toleration covers a taint; without a key it covers every taint."""
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )
