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
"""Limit of all pods in a status: 512 conditions about nodes, of usual length, and 64 containers."""

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


def planned_pods(specs: Mapping[str, bytes | None]) -> dict[str, PlannedPod | None]:
    """Return the status's records of the pods, by role.

    None: the pod after admission is not known. The largest pods are left out if all of them
    together have more than MAX_STORED_BYTES.
    """
    parts: dict[str, Mapping[str, Any]] = {
        name: msgspec.json.decode(spec) for name, spec in specs.items() if spec is not None
    }
    sizes = {name: stored_bytes(each) for name, each in parts.items()}
    found: dict[str, PlannedPod | None] = dict.fromkeys(specs)
    left = MAX_STORED_BYTES
    for name in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[name]
        found[name] = PlannedPod(spec=dict(parts[name])) if left >= 0 else PlannedPod(omitted=True)
    return found


def _with_requests(container: Container) -> Container:
    """Fill in requests from limits, as the API server does; a plan reads nothing else of limits."""
    resources = container.resources
    requests = Resources(requests=dict(resources.limits) | resources.requests)
    return msgspec.structs.replace(container, resources=requests)
