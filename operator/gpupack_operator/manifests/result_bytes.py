# SPDX-License-Identifier: Apache-2.0
"""Number of bytes of a worker's result that the kubelet keeps.

The kubelet cuts off a termination message after 4 KiB, and divides 12 KiB among the containers of a
pod, including those that admission adds. The pod of the dry run shows how many these are.
"""

from collections.abc import Collection
from typing import Final

from gpupack_crds.gpujob_status import PlannedPod
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests.containers import with_changed

RESULT_BYTES: Final = "GPUPACK_RESULT_BYTES"
MAX_CONTAINER_BYTES: Final = 4096
MAX_POD_BYTES: Final = 12 << 10


def with_result_bytes(pod_spec: Json, workers: Collection[str], *, injected: int = 0) -> Json:
    """Set the variable with that number in these containers; `injected` is what admission adds."""
    count = _count(pod_spec) + injected
    size = {"name": RESULT_BYTES, "value": str(min(MAX_CONTAINER_BYTES, MAX_POD_BYTES // count))}
    return with_changed(pod_spec, workers, lambda worker: _with(worker, size))


def injected_containers(pod_spec: Json, planned: PlannedPod | None) -> int:
    """Count the containers that admission has added to a pod of one worker.

    Args:
        pod_spec: the PodSpec of the dry run.
        planned: the pod as admission made it; None: it is not known.
    """
    return max(_count(planned.spec) - _count(pod_spec), 0) if planned is not None else 0


def _count(pod_spec: Json) -> int:
    return sum(len(pod_spec.get(kind) or ()) for kind in ("containers", "initContainers"))


def _with(container: Json, variable: Json) -> Json:
    others = [each for each in container.get("env") or () if each["name"] != variable["name"]]
    return container | {"env": [*others, variable]}
