# SPDX-License-Identifier: Apache-2.0
"""What of a PodSpec decides where a pod fits, as the plan API reads it.

Admission may add to a pod: a LimitRange its requests, a RuntimeClass overhead and a selector, a
policy or webhook sidecars and tolerations. So a plan is asked for with the pod that a dry run
answered. The same parts stand in the GPUJob's status, for whoever plans without the operator.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpupack_crds.gpujob_status import PlannedPod
from gpupack_crds.wire import stored_bytes
from gpupack_kube.client import decode
from gpupack_kube.objects import Container, Json, Resources, View

MAX_STORED_BYTES: Final = 16 << 10
"""Of a status: 512 conditions about nodes, of usual length, and 64 containers."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class PlannedSpec(View, frozen=True):
    """The parts of a PodSpec; what a plan does not read is not kept."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, str | int | float] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: Json = {}

    def __post_init__(self) -> None:
        """Keep the node affinity that is required, and write requests that follow from limits."""
        keep = msgspec.structs.force_setattr
        required = ((self.affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        keep(self, "affinity", {"nodeAffinity": {_REQUIRED: required}} if required else {})
        keep(self, "containers", tuple(map(_requesting, self.containers)))
        keep(self, "init_containers", tuple(map(_requesting, self.init_containers)))


def read(spec: bytes) -> bytes:
    """The parts of a PodSpec that the API server answered, as JSON.

    Raises:
        KubeError: it is no PodSpec.
    """
    return msgspec.json.encode(decode(spec, PlannedSpec))


def planned_pod(spec: bytes | None) -> PlannedPod | None:
    """What the status says of it; None: what admission makes of the pod is not known."""
    if spec is None:
        return None
    parts: Mapping[str, Any] = msgspec.json.decode(spec)
    if stored_bytes(parts) > MAX_STORED_BYTES:
        return PlannedPod(omitted=True)
    return PlannedPod(spec=dict(parts))


def _requesting(container: Container) -> Container:
    """The API server fills in requests from limits; a plan reads nothing else of them."""
    asked = container.resources
    requests = Resources(requests=dict(asked.limits) | asked.requests)
    return msgspec.structs.replace(container, resources=requests)
