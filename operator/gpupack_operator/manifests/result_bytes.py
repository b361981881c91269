# SPDX-License-Identifier: Apache-2.0
"""How much of a worker's result the kubelet keeps.

It cuts off a termination message after 4 KiB, and divides 12 KiB among the containers of a pod,
also among those that admission adds. How many these are is known from the pod of the dry run.
"""

from collections.abc import Collection
from typing import Final

from gpupack_crds.gpujob_status import PlannedPod
from gpupack_kube.objects import Json
from gpupack_operator.manifests.containers import with_changed

RESULT_BYTES: Final = "GPUPACK_RESULT_BYTES"
MAX_CONTAINER_BYTES: Final = 4096
MAX_POD_BYTES: Final = 12 << 10


def with_result_bytes(pod_spec: Json, workers: Collection[str], *, injected: int = 0) -> Json:
    """Set the variable that says so in these containers; admission adds so many others."""
    count = _count(pod_spec) + injected
    size = {"name": RESULT_BYTES, "value": str(min(MAX_CONTAINER_BYTES, MAX_POD_BYTES // count))}
    return with_changed(pod_spec, workers, lambda worker: _with(worker, size))


def injected_containers(pod_spec: Json, planned: PlannedPod | None) -> int:
    """Count the containers that admission has added to a pod of one worker.

    Args:
        pod_spec: as it was tried.
        planned: as admission made it; None: that is not known.
    """
    return max(_count(planned.spec) - _count(pod_spec), 0) if planned is not None else 0


def _count(pod_spec: Json) -> int:
    return sum(len(pod_spec.get(kind) or ()) for kind in ("containers", "initContainers"))


def _with(container: Json, variable: Json) -> Json:
    others = [each for each in container.get("env") or () if each["name"] != variable["name"]]
    return container | {"env": [*others, variable]}
