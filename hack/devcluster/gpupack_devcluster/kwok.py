# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: Node objects that kwok keeps Ready, for tests of scale.

Their taint keeps ordinary pods and DaemonSets away; pods for these nodes tolerate it.
"""

import json
from typing import Any

from gpupack_devcluster.kubectl import Kubectl

ANNOTATION = "kwok.x-k8s.io/node"
LABEL = "type=kwok"


def node(index: int) -> dict[str, Any]:
    """Return one simulated node; kwok keeps its allocatable."""
    resources = {"cpu": "64", "memory": "512Gi", "pods": "200"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"kwok-{index}",
            "annotations": {ANNOTATION: "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": f"kwok-{index}"},
        },
        "spec": {"taints": [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }


def set_nodes(kubectl: Kubectl, count: int) -> None:
    """Create the simulated nodes 1..count, and delete those beyond."""
    present = set(kubectl("get", "nodes", "-l", LABEL, "-o", "name").split())
    wanted = {f"node/kwok-{index}": index for index in range(1, count + 1)}
    if surplus := sorted(present - set(wanted)):
        kubectl("delete", "--wait=false", *surplus)
    missing = [node(index) for name, index in wanted.items() if name not in present]
    if missing:
        items = {"apiVersion": "v1", "kind": "List", "items": missing}
        kubectl("create", "-f", "-", text_input=json.dumps(items))
