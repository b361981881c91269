# SPDX-License-Identifier: Apache-2.0
"""Parts of a PodSpec that decide where a pod fits and how it ends, as the plan API reads them.

Admission may add to a pod: a LimitRange requests, a RuntimeClass overhead and a selector, a policy
or webhook sidecars and tolerations. So a plan is requested with the pod from a dry run's answer.
The GPUJob's status contains the same parts, for components that plan without the operator.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpupack_crds.gpujob_status import PlannedPod
from gpupack_crds.wire import stored_bytes
from gpupack_kubeclient.client import decode
from gpupack_kubeclient.objects import Container, Json, Resources, View

MAX_STORED_BYTES: Final = 16 << 10
"""Limit in a status: 512 conditions about nodes, of usual length, and 64 containers."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class PlannedSpec(View, frozen=True):
    """Parts of a PodSpec; fields that a plan does not read are dropped."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, str | int | float] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: Json = {}
    termination_grace_period_seconds: int = 30

    def __post_init__(self) -> None:
        """Keep the required node affinity, and write requests that follow from limits."""
        keep = msgspec.structs.force_setattr
        required = ((self.affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        keep(self, "affinity", {"nodeAffinity": {_REQUIRED: required}} if required else {})
        keep(self, "containers", tuple(map(_with_requests, self.containers)))
        keep(self, "init_containers", tuple(map(_with_requests, self.init_containers)))


def read(spec: bytes) -> bytes:
    """Return the parts of a PodSpec that the API server answered, as JSON.

    Raises:
        KubeError: it is not a PodSpec.
    """
    return msgspec.json.encode(decode(spec, PlannedSpec))


def planned_pod(spec: bytes | None, most: int = MAX_STORED_BYTES) -> PlannedPod | None:
    """Return the status's record of the pod; None: the pod after admission is not known.

    A larger pod than `most` bytes is left out.
    """
    if spec is None:
        return None
    parts: Mapping[str, Any] = msgspec.json.decode(spec)
    if stored_bytes(parts) > most:
        return PlannedPod(omitted=True)
    return PlannedPod(spec=dict(parts))


def _with_requests(container: Container) -> Container:
    """Fill in requests from limits, as the API server does; a plan reads nothing else of limits."""
    resources = container.resources
    requests = Resources(requests=dict(resources.limits) | resources.requests)
    return msgspec.structs.replace(container, resources=requests)
