# SPDX-License-Identifier: Apache-2.0
"""Checks that annotation, container environment and status agree for every worker."""

import dataclasses
import itertools
from typing import Any

import msgspec
from harness import Kube, annotation, placed

GPU = "gpupack.dev/gpu"


@dataclasses.dataclass(frozen=True)
class View:
    """One source's view of a worker: its node, its GPUs, and how much of each."""

    job: str
    worker: int
    node: str
    devices: tuple[str, ...]
    percent: int
    memory_mib: int


def views_of_status(jobs: dict[str, dict[str, Any]]) -> set[View]:
    """Read GPUJob.status.placement."""
    return {
        View(name, place.worker, place.node, *extent(msgspec.to_builtins(place.devices)))
        for name, job in jobs.items()
        for place in placed(job)
    }


def views_of_containers(jobs: dict[str, dict[str, Any]]) -> set[View]:
    """Read what the containers saw in their environment, from their results."""
    return {
        View(
            name,
            result["worker"],
            result["metrics"]["node"],
            tuple(result["metrics"]["devices"].split(",")),
            int(result["metrics"]["percent"]),
            int(result["metrics"]["memoryMiB"]),
        )
        for name, job in jobs.items()
        for result in job["status"]["results"]
    }


def views_of_annotations(kube: Kube) -> set[View]:
    """Read what the Bindings wrote on the pods."""
    return {
        View(
            pod["metadata"]["labels"]["gpupack.dev/job"],
            worker,
            pod["spec"]["nodeName"],
            *extent(devices),
        )
        for pod in kube.pods()
        for worker, devices in by_worker(pod)
    }


def by_worker(pod: dict[str, Any]) -> list[tuple[int, list[dict[str, Any]]]]:
    """Yield each worker of a pod with its part of the pod's devices.

    The devices are in the order of the containers. A container of a pod with several workers has
    the worker's index at the end of its name.
    """
    limits = [
        (container["name"], container["resources"]["limits"])
        for container in pod["spec"]["containers"]
        if "limits" in container.get("resources", {})
    ]
    counts = [(name, int(limit[GPU])) for name, limit in limits if GPU in limit]
    if len(counts) < 2:
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        return [(int(index), annotation(pod))]
    devices = iter(annotation(pod))
    return [
        (int(name.rpartition("-")[2]), list(itertools.islice(devices, count)))
        for name, count in counts
    ]


def extent(devices: list[dict[str, Any]]) -> tuple[tuple[str, ...], int, int]:
    """Return the devices' UUIDs, and the percent and memory of each."""
    ((percent, memory_mib),) = {(device["percent"], device["memoryMiB"]) for device in devices}
    return tuple(device["uuid"] for device in devices), percent, memory_mib
