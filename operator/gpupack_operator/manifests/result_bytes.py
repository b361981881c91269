# SPDX-License-Identifier: Apache-2.0
"""How much of a worker's result the kubelet keeps.

It cuts off a termination message after 4 KiB, and divides 12 KiB among the containers of a pod.
"""

from collections.abc import Collection
from typing import Final

from gpupack_kube.objects import Json
from gpupack_operator.manifests.containers import with_changed

RESULT_BYTES: Final = "GPUPACK_RESULT_BYTES"
MAX_CONTAINER_BYTES: Final = 4096
MAX_POD_BYTES: Final = 12 << 10


def with_result_bytes(pod_spec: Json, workers: Collection[str]) -> Json:
    """Set the variable that says so in these containers."""
    count = len(pod_spec["containers"]) + len(pod_spec.get("initContainers") or ())
    size = {"name": RESULT_BYTES, "value": str(min(MAX_CONTAINER_BYTES, MAX_POD_BYTES // count))}
    return with_changed(pod_spec, workers, lambda worker: _with(worker, size))


def _with(container: Json, variable: Json) -> Json:
    others = [each for each in container.get("env") or () if each["name"] != variable["name"]]
    return container | {"env": [*others, variable]}
