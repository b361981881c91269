# SPDX-License-Identifier: Apache-2.0
"""Messages of kube-scheduler (k8s.io/kube-scheduler/extender/v1): the fields that are used.

Their Go types have no JSON tags, so keys are Go names; absent values are null. Names become parts
of URLs of the API server: a text that is not a Kubernetes name is refused while decoding.
"""

from typing import Annotated, Final

import msgspec

from gpupack_placement import NodeName
from gpupack_scheduler.requests.pod_request import CalledPod

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
LONGEST_UID: Final = 128
Uid = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_UID)]


class Go(msgspec.Struct, rename="pascal", kw_only=True, frozen=True):
    """Message whose keys are Go names."""


NodeNames = Annotated[list[NodeName], msgspec.Meta(max_length=20_000)]
"""Four times the nodes that Kubernetes supports."""


class ExtenderArgs(Go, frozen=True):
    """Arguments of filter and prioritize.

    `nodeCacheCapable: true` makes kube-scheduler set NodeNames.
    """

    pod: CalledPod
    node_names: NodeNames

    def __post_init__(self) -> None:
        """Refuse a pod that claims could not distinguish from another.

        Raises:
            ValueError: it lacks name, namespace or UID.
        """
        metadata = self.pod.metadata
        if not (metadata.name and metadata.namespace and 0 < len(metadata.uid) <= LONGEST_UID):
            raise ValueError(
                f"Pod.metadata must have name, namespace and a uid of at most {LONGEST_UID}"
            )


class FilterResult(Go, frozen=True, omit_defaults=True):
    """Nodes that pass, and why the others do not.

    Attributes:
        failed_nodes: nodes on which evicting pods could help.
        failed_and_unresolvable_nodes: nodes on which evicting pods could not help.
        error: nothing was decided; kube-scheduler retries after a backoff.
    """

    node_names: list[NodeName] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Go, frozen=True):
    """Score of one node, 0 to 10."""

    host: str
    score: int


class BindingArgs(Go, frozen=True):
    """Arguments of bind."""

    pod_name: Name
    pod_namespace: Name
    pod_uid: Uid = msgspec.field(name="PodUID")
    node: Name


class BindingResult(Go, frozen=True):
    """Result of bind; with an empty error the pod is bound."""

    error: str = ""
