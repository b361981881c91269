# SPDX-License-Identifier: Apache-2.0
"""A pod that several workers share: the template's worker container once for each of them.

    template:  init containers, volumes, others    worker
    pod:       the same, once                      worker-0 worker-1 … worker-3, each with its GPUs

The containers have one network, one IPC namespace and one /dev/shm, so that the processes in them
reach each other over NVLink and shared memory. So no two of them can open the same port.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kube.objects import Json
from gpupack_operator.manifests.result_bytes import with_result_bytes

DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"
COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Set by the Job controller where a Job is indexed; programs read their rank from it."""

_INDEX_PATHS: Final = frozenset(
    f"metadata.{kind}['{names.INDEX_LABEL}']" for kind in ("labels", "annotations")
)
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBED_BY: Final = ("httpGet", "tcpSocket", "grpc")


def obstacle(pod_spec: Json, container: str) -> str:
    """Say what of a template only a pod with one worker can have; empty: nothing.

    Args:
        pod_spec: of the template, merged.
        container: name of the worker's container.
    """
    for each in pod_spec["containers"]:
        if each["name"] == container and (port := next(_ports(each), None)) is not None:
            return f"container {container} opens port {port}, which only one of them can"
    others = [
        each.get("name") for key in ("containers", "initContainers") for each in _of(pod_spec, key)
    ]
    if taken := next((name for name in others if _is_a_worker_s(name, container)), None):
        return f"container {taken} has the name of a worker's container"
    if pod_spec.get("resources"):
        return "spec.template.spec.resources are for a pod with one worker"
    return ""


def shared(template: Json, pod: WorkerPod, *, container: str, hostname: str) -> Json:
    """The template of one pod, with a container for each of its workers.

    Args:
        template: of a pod with one worker.
        pod: which workers it has.
        container: name of the worker's container there.
        hostname: of the pod.
    """
    meta, spec = template["metadata"], template["spec"]
    workers = [names.worker_container(container, index) for index in pod.workers]
    default = meta["annotations"].get(DEFAULT_CONTAINER_ANNOTATION, container)
    annotations = meta["annotations"] | {
        DEFAULT_CONTAINER_ANNOTATION: workers[0] if default == container else default,
    }
    made = spec | {
        "hostname": hostname,
        "containers": list(_containers(spec["containers"], container, pod)),
        "volumes": [sized_for(each, len(workers)) for each in spec.get("volumes") or ()],
    }
    return {
        "metadata": meta | {"annotations": annotations},
        "spec": with_result_bytes(made, frozenset(workers)),
    }


def _containers(found: list[Json], container: str, pod: WorkerPod) -> Iterator[Json]:
    for each in found:
        if each["name"] == container:
            yield from (_of_worker(each, container, index) for index in pod.workers)
        else:
            yield each


def _of_worker(container: Json, base: str, index: int) -> Json:
    env = [_for_worker(each, base, index) for each in container.get("env") or ()]
    if all(each["name"] != COMPLETION_INDEX for each in env):
        env.append({"name": COMPLETION_INDEX, "value": str(index)})
    return container | {"name": names.worker_container(base, index), "env": env}


def _for_worker(variable: Json, base: str, index: int) -> Json:
    """Write the index, which is a label of the pod elsewhere; the template may read it too."""
    source = variable.get("valueFrom") or {}
    if (source.get("fieldRef") or {}).get("fieldPath") in _INDEX_PATHS:
        return {"name": variable["name"], "value": str(index)}
    of_resources = source.get("resourceFieldRef") or {}
    if of_resources.get("containerName") == base:
        named = of_resources | {"containerName": names.worker_container(base, index)}
        return variable | {"valueFrom": {"resourceFieldRef": named}}
    return variable


def sized_for(volume: Json, workers: int) -> Json:
    """Return the volume; of /dev/shm each worker has as much as it would have alone."""
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if volume.get("name") != names.SHM_VOLUME or limit is None or workers == 1:
        return volume
    return volume | {"emptyDir": volume["emptyDir"] | {"sizeLimit": _times(limit, workers)}}


def _times(limit: Any, workers: int) -> Any:
    """What is no quantity stays as it is: the API server says so."""
    if whole := re.fullmatch("([0-9]+)([A-Za-z]*)", str(limit)):
        return f"{int(whole[1]) * workers}{whole[2]}"
    try:
        return str(quantity.whole(limit) * workers)
    except QuantityInvalid:
        return limit


def _ports(container: Json) -> Iterator[Any]:
    """Ports that a container says it opens."""
    yield from (
        each.get("hostPort") or each.get("containerPort") for each in _of(container, "ports")
    )
    for probe in _PROBES:
        found = container.get(probe)
        by = [found.get(way) for way in _PROBED_BY] if isinstance(found, dict) else []
        yield from (each["port"] for each in by if isinstance(each, dict) and "port" in each)


def _of(found: Json, key: str) -> Iterator[Json]:
    """Objects of a list that a user may have written."""
    listed = found.get(key)
    return (
        (each for each in listed if isinstance(each, dict))
        if isinstance(listed, list)
        else iter(())
    )


def _is_a_worker_s(name: Any, container: str) -> bool:
    _, dash, index = str(name).rpartition("-")
    return (
        bool(dash) and index.isdecimal() and names.worker_container(container, int(index)) == name
    )
