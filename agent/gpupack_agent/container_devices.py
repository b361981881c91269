# SPDX-License-Identifier: Apache-2.0
"""The assignment of a pod's devices to its containers. Pure.

The annotation lists the devices of the whole pod. Its containers take them from the front, in the
order of the spec (sidecars last). Each takes as many as it requests. The spec does not change while
the pod lives, so a container that restarts gets the same devices.
"""

from collections.abc import Mapping

from gpupack_agent.errors import StartRefused
from gpupack_agent.holders import annotated_devices
from gpupack_agent.pods import PodView
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare


def split_by_container(
    pod: PodView, devices: tuple[DeviceShare, ...]
) -> Mapping[str, tuple[DeviceShare, ...]]:
    """Split a pod's devices among its containers.

    Raises:
        StartRefused: the containers' requests cannot be combined, or do not match the devices.
    """
    _check_requests(pod)
    requested = sum(request.count for request in pod.requests)
    if requested != len(devices):
        parts = ", ".join(f"{request.container}: {request.count}" for request in pod.requests)
        raise StartRefused(
            f"the pod's containers request {requested} {pod.requests[0].resource} ({parts}), but "
            f"its annotation {names.DEVICES_ANNOTATION} is {pod.annotation}: the numbers must be "
            "equal",
            pods=(pod.title,),
        )
    found: dict[str, tuple[DeviceShare, ...]] = {}
    start = 0
    for request in pod.requests:
        found[request.container] = devices[start : start + request.count]
        start += request.count
    return found


def peers(
    pod: PodView, parts: Mapping[str, tuple[DeviceShare, ...]], container: str
) -> tuple[DeviceShare, ...]:
    """Return the devices of the gang's other workers in this pod; none if the pod is not shared.

    The driver maps memory of a peer's GPU, as NVLink needs it, only into a process that can open
    that GPU's device node (without it: CUDA error 101, invalid device ordinal).
    CUDA_VISIBLE_DEVICES lists the container's own GPUs.
    """
    if not pod.is_shared:
        return ()
    others = (shares for name, shares in parts.items() if name != container)
    return tuple(share for shares in others for share in shares)


def container_by_device(pod: PodView) -> Mapping[str, str]:
    """Return the container of each device, by UUID; empty if the assignment is invalid."""
    try:
        found = split_by_container(pod, annotated_devices(pod))
    except StartRefused:
        return {}
    return {share.uuid: container for container, shares in found.items() for share in shares}


def _check_requests(pod: PodView) -> None:
    """Check that the containers' requests can be combined.

    Several containers may request whole GPUs, or MIG slices of one profile. Only one may request a
    share.

    Raises:
        StartRefused: the requests cannot be combined.
    """
    if pod.plain_init_containers:
        raise StartRefused(
            f"init container {pod.plain_init_containers[0]} cannot have devices: request them in a "
            "container, or set its restartPolicy to Always",
            pods=(pod.title,),
        )
    containers = ", ".join(dict.fromkeys(request.container for request in pod.requests))
    resources = sorted({request.resource for request in pod.requests})
    if len(resources) != 1:
        raise StartRefused(
            f"the pod's containers ({containers}) request {' and '.join(resources) or 'nothing'}; "
            "all devices of a pod are of one resource",
            pods=(pod.title,),
        )
    if resources == [names.GPU_SHARE] and len(pod.requests) > 1:
        raise StartRefused(
            f"{len(pod.requests)} containers request {names.GPU_SHARE} ({containers}): only one "
            "container of a pod can have a share of a GPU",
            pods=(pod.title,),
        )
