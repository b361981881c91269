# SPDX-License-Identifier: Apache-2.0
"""Pod that several workers share: it has a copy of the template's worker container for each.

    template:  init containers, volumes, others    worker
    pod:       the same, once                      worker-0 worker-1 … worker-3, each with its GPUs

The containers have one network, one IPC namespace and one /dev/shm, so that their processes reach
each other over NVLink and shared memory. So no two of them can open the same port.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests.containers import with_default_variables
from gpupack_operator.manifests.result_bytes import with_result_bytes

DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"
COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Set by the Job controller where a Job is indexed; programs read their rank from it."""

_INDEX_PATHS: Final = frozenset(
    f"metadata.{kind}['{names.INDEX_LABEL}']" for kind in ("labels", "annotations")
)
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBED_BY: Final = ("httpGet", "tcpSocket", "grpc")


def sharing_obstacle(pod_spec: Json, container: str) -> str:
    """Name what in a template only a pod with one worker can have; empty: nothing.

    Args:
        pod_spec: the merged template's PodSpec.
        container: name of the worker's container.
    """
    for each in pod_spec["containers"]:
        if each["name"] == container and (port := next(_ports(each), None)) is not None:
            return f"container {container} opens port {port}, which only one of them can"
    others = [
        each.get("name") for key in ("containers", "initContainers") for each in _of(pod_spec, key)
    ]
    if taken := next((name for name in others if _is_worker_name(name, container)), None):
        return f"container {taken} has the name of a worker's container"
    if pod_spec.get("resources"):
        return "spec.template.spec.resources are for a pod with one worker"
    return ""


def shared_template(
    template: Json, pod: WorkerPod, *, container: str, hostname: str, injected: int = 0
) -> Json:
    """Make the template of one pod, with a container for each of its workers.

    Helper containers get the variable that an indexed Job sets, with the index of the first worker.

    Args:
        template: template of a pod with one worker.
        pod: the pod's workers.
        container: name of the worker's container in the template.
        hostname: the pod's host name.
        injected: number of containers that admission adds.
    """
    meta, spec = template["metadata"], template["spec"]
    workers = [names.worker_container(container, index) for index in pod.workers]
    made = spec | {
        "hostname": hostname,
        "containers": list(_containers(spec["containers"], container, pod)),
        "volumes": [
            _with_container_name(scale_shm(each, len(workers)), container, workers[0])
            for each in spec.get("volumes") or ()
        ],
    }
    if spec.get("initContainers"):
        made["initContainers"] = [
            _of_helper(each, container, pod.index) for each in spec["initContainers"]
        ]
    annotations = _annotations(meta["annotations"], container, workers)
    return {
        "metadata": meta | {"annotations": annotations | {names.INDEX_LABEL: str(pod.index)}},
        "spec": with_result_bytes(made, frozenset(workers), injected=injected),
    }


def _annotations(found: dict[str, str], container: str, workers: list[str]) -> dict[str, str]:
    """Return the annotations, with those of the worker's container repeated for each worker."""
    default = found.get(DEFAULT_CONTAINER_ANNOTATION, container)
    changed = {DEFAULT_CONTAINER_ANNOTATION: workers[0] if default == container else default}
    for key, value in found.items():
        prefix, _, name = key.partition("/")
        if prefix.startswith("container.") and name == container:
            changed |= {f"{prefix}/{worker}": value for worker in workers}
        elif key != DEFAULT_CONTAINER_ANNOTATION:
            changed[key] = value
    return changed


def _with_container_name(found: Any, container: str, worker: str) -> Any:
    """Return a part of a manifest in which resourceFieldRefs name the given worker's container."""
    if isinstance(found, list):
        return [_with_container_name(each, container, worker) for each in found]
    if not isinstance(found, dict):
        return found
    made = {key: _with_container_name(value, container, worker) for key, value in found.items()}
    of_resources = made.get("resourceFieldRef")
    if isinstance(of_resources, dict) and of_resources.get("containerName") == container:
        made["resourceFieldRef"] = of_resources | {"containerName": worker}
    return made


def _containers(found: list[Json], container: str, pod: WorkerPod) -> Iterator[Json]:
    for each in found:
        if each["name"] == container:
            yield from (_of_worker(each, container, index) for index in pod.workers)
        else:
            yield _of_helper(each, container, pod.index)


def _of_worker(container: Json, base: str, index: int) -> Json:
    made = _of_helper(container, base, index)
    env = [_with_index(each, index) for each in made["env"]]
    return made | {"name": names.worker_container(base, index), "env": env}


def _of_helper(container: Json, base: str, index: int) -> Json:
    """Return a container that has a worker's index in the variable of the Job controller."""
    env = _with_container_name(
        container.get("env") or [], base, names.worker_container(base, index)
    )
    if all(each["name"] != COMPLETION_INDEX for each in env):
        env.append({"name": COMPLETION_INDEX, "value": str(index)})
    return container | {"env": env}


def with_completion_index(pod_spec: Json, index: int) -> Json:
    """Give all containers the variable of the Job controller with a worker's index."""
    variable = {"name": COMPLETION_INDEX, "value": str(index)}
    return pod_spec | {
        kind: [with_default_variables(each, (variable,)) for each in pod_spec[kind]]
        for kind in ("containers", "initContainers")
        if pod_spec.get(kind)
    }


def _with_index(variable: Json, index: int) -> Json:
    """Replace a reference to the index label by the worker's index.

    The template may use one too.
    """
    source = variable.get("valueFrom") or {}
    if (source.get("fieldRef") or {}).get("fieldPath") in _INDEX_PATHS:
        return {"name": variable["name"], "value": str(index)}
    return variable


def scale_shm(volume: Json, workers: int) -> Json:
    """Return the volume.

    A shared /dev/shm gets the size for one worker times the number of workers.
    """
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if volume.get("name") != names.SHM_VOLUME or limit is None or workers == 1:
        return volume
    return volume | {"emptyDir": volume["emptyDir"] | {"sizeLimit": _times(limit, workers)}}


def _times(limit: Any, workers: int) -> Any:
    """Multiply a quantity; leave an invalid one unchanged, which the API server refuses."""
    if whole := re.fullmatch("([0-9]+)([A-Za-z]*)", str(limit)):
        return f"{int(whole[1]) * workers}{whole[2]}"
    try:
        return str(quantity.whole(limit) * workers)
    except QuantityInvalid:
        return limit


def _ports(container: Json) -> Iterator[Any]:
    """Yield the ports that a container declares, including those of its probes."""
    yield from (
        each.get("hostPort") or each.get("containerPort") for each in _of(container, "ports")
    )
    for probe in _PROBES:
        found = container.get(probe)
        by = [found.get(way) for way in _PROBED_BY] if isinstance(found, dict) else []
        yield from (each["port"] for each in by if isinstance(each, dict) and "port" in each)


def _of(found: Json, key: str) -> Iterator[Json]:
    """Yield the objects of a list that a user may have written."""
    listed = found.get(key)
    return (
        (each for each in listed if isinstance(each, dict))
        if isinstance(listed, list)
        else iter(())
    )


def _is_worker_name(name: Any, container: str) -> bool:
    index = names.worker_of_container(str(name))
    return index is not None and names.worker_container(container, index) == name
