# SPDX-License-Identifier: Apache-2.0
"""Node affinity that pins the pods of a small gang to their nodes and keeps the template's terms.

Terms of a required node affinity are ORed, requirements within a term are ANDed. So each term of
the template is repeated for each planned node, with the node's name added. The API allows one name
in a matchFields requirement, and kube-scheduler then examines only these nodes.

Pinning saves kube-scheduler work and is no safeguard: `filter` answers with the planned node only.
So a gang that would need more than MAX_TERMS is not pinned: a term adds some 110 bytes to every
pod.
"""

from typing import Any, Final

from gpupack_kubeclient.objects import Json

MAX_TERMS: Final = 32

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pin_to_nodes(pod_spec: Json, nodes: tuple[str, ...]) -> Json:
    """Pin a PodSpec to these nodes; return it unchanged if there are too many of them."""
    affinity = pod_spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    if len(terms) * len(nodes) > MAX_TERMS:
        return pod_spec
    required = {"nodeSelectorTerms": [_and_node(term, node) for term in terms for node in nodes]}
    return pod_spec | {
        "affinity": affinity | {"nodeAffinity": node_affinity | {REQUIRED: required}}
    }


def _and_node(term: Json, node: str) -> Json:
    is_node: dict[str, Any] = {"key": "metadata.name", "operator": "In", "values": [node]}
    return term | {"matchFields": [*term.get("matchFields", ()), is_node]}
