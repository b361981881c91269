# SPDX-License-Identifier: Apache-2.0
"""Pins a pod to the planned nodes, without losing what its template asks for.

Terms of a required node affinity are ORed, requirements within a term are ANDed. So each term of
the template is repeated for each planned node, with the node's name added. The API allows one
name in a matchFields requirement, and kube-scheduler then looks at these nodes alone.
"""

from typing import Any

from gpupack_kube.objects import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pinned(pod_spec: Json, nodes: tuple[str, ...]) -> Json:
    """A copy of the PodSpec that only these nodes can take."""
    affinity = pod_spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = {"nodeSelectorTerms": [_and_node(term, node) for term in terms for node in nodes]}
    return pod_spec | {
        "affinity": affinity | {"nodeAffinity": node_affinity | {REQUIRED: required}}
    }


def _and_node(term: Json, node: str) -> Json:
    is_node: dict[str, Any] = {"key": "metadata.name", "operator": "In", "values": [node]}
    return term | {"matchFields": [*term.get("matchFields", ()), is_node]}
