# SPDX-License-Identifier: Apache-2.0
"""How much of a worker's result the kubelet keeps.

It cuts off a termination message after 4 KiB, and divides 12 KiB among the containers of a pod.
"""

from collections.abc import Collection
from typing import Final

from gpupack_kube.objects import Json

RESULT_BYTES: Final = "GPUPACK_RESULT_BYTES"
MAX_CONTAINER_BYTES: Final = 4096
MAX_POD_BYTES: Final = 12 << 10


def with_result_bytes(pod_spec: Json, workers: Collection[str]) -> Json:
    """Set the variable that says so in these containers."""
    containers = pod_spec["containers"]
    count = len(containers) + len(pod_spec.get("initContainers") or ())
    size = {"name": RESULT_BYTES, "value": str(min(MAX_CONTAINER_BYTES, MAX_POD_BYTES // count))}
    return pod_spec | {
        "containers": [
            _with(each, size) if each["name"] in workers else each for each in containers
        ]
    }


def _with(container: Json, variable: Json) -> Json:
    others = [each for each in container.get("env") or () if each["name"] != variable["name"]]
    return container | {"env": [*others, variable]}
