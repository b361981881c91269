# SPDX-License-Identifier: Apache-2.0
"""Manifests that the API server refuses, each with what a user reads.

A row is a name, a change to a good manifest (dotted path → value, REMOVE takes the field out) and
a part of the message that `kubectl apply` prints.
"""

import copy
import dataclasses
import json
from typing import Any

REMOVE = object()

_GOOD: dict[str, Any] = {
    "apiVersion": "gpupack.dev/v1alpha1",
    "kind": "GPUJob",
    "metadata": {"name": "good"},
    "spec": {"gpus": 1, "workload": {"name": "matmul"}},
}


@dataclasses.dataclass(frozen=True)
class Bad:
    """One bad manifest."""

    name: str
    change: dict[str, Any]
    message: str

    def manifest(self) -> dict[str, Any]:
        """The good manifest with the change in it."""
        built = copy.deepcopy(_GOOD)
        for path, value in self.change.items():
            *parents, last = path.split(".")
            target = built
            for parent in parents:
                target = target.setdefault(parent, {})
            if value is REMOVE:
                del target[last]
            else:
                target[last] = value
        return built

    def as_json(self) -> str:
        """The manifest as kubectl reads it."""
        return json.dumps(self.manifest())


GOOD = Bad("nothing", {}, "")


def worker(**fields: Any) -> list[dict[str, Any]]:
    """A template's containers: one worker with these fields."""
    return [{"name": "worker", "image": "example.test/own:1", **fields}]


CONTAINERS = "spec.template.spec.containers"

BAD = [
    Bad(
        "neither gpus nor share",
        {"spec.gpus": REMOVE},
        "set exactly one of gpus (whole GPUs for each worker) and share (a part of one GPU)",
    ),
    Bad(
        "both gpus and share",
        {"spec.share": {"percent": 50, "memory": "10Gi"}},
        "set exactly one of gpus (whole GPUs for each worker) and share (a part of one GPU)",
    ),
    Bad(
        "a share, which this release does not serve",
        {"spec.gpus": REMOVE, "spec.share": {"percent": 50, "memory": "10Gi"}},
        "spec.share: Invalid value: shares of a GPU are not served by this release; "
        "ask for whole GPUs with gpus",
    ),
    Bad("no GPUs", {"spec.gpus": 0}, "spec.gpus: Invalid value: 0: spec.gpus in body should be "),
    Bad("GPUs in words", {"spec.gpus": "two"}, "spec.gpus: Invalid value: "),
    Bad("half a GPU", {"spec.gpus": 0.5}, "spec.gpus: Invalid value: "),
    Bad(
        "more GPUs than a node can have",
        {"spec.gpus": 65},
        "spec.gpus: Invalid value: 65: spec.gpus in body should be less than or equal to 64",
    ),
    Bad(
        "no workers",
        {"spec.workers": 0},
        "spec.workers: Invalid value: 0: spec.workers in body should be greater than or equal to 1",
    ),
    Bad(
        "nothing to run",
        {"spec.workload": REMOVE},
        "nothing to run: set workload.name, or a container named worker with an image",
    ),
    Bad(
        "a template whose container is not named worker",
        {"spec.workload": REMOVE, CONTAINERS: [{"name": "main", "image": "example.test/own:1"}]},
        "nothing to run: set workload.name, or a container named worker with an image",
    ),
    Bad(
        "an unknown workload",
        {"spec.workload.name": "mining"},
        'spec.workload.name: Unsupported value: "mining": supported values: ',
    ),
    Bad(
        "an unknown policy",
        {"spec.policy": "luckiest"},
        'spec.policy: Unsupported value: "luckiest": supported values: ',
    ),
    Bad("a misspelled field", {"spec.gpu": 1}, 'unknown field "spec.gpu"'),
    Bad(
        "memory without a unit that exists",
        {"spec.minMemory": "40 gigabytes"},
        "spec.minMemory: Invalid value: ",
    ),
    Bad(
        "a node chosen by hand",
        {"spec.template.spec.nodeName": "node-1"},
        "gpupack chooses the node; use nodeSelector or affinity to narrow its choice",
    ),
    Bad(
        "another scheduler",
        {"spec.template.spec.schedulerName": "default-scheduler"},
        "the scheduler is always gpupack's; remove schedulerName",
    ),
    Bad(
        "a restart policy",
        {"spec.template.spec.restartPolicy": "Always"},
        "workers are restarted together, by spec.maxRestarts; remove restartPolicy",
    ),
    Bad(
        "GPUs asked for in the container",
        {CONTAINERS: worker(resources={"limits": {"gpupack.dev/gpu": 1}})},
        "ask for GPUs by spec.gpus, not in the container's resources",
    ),
    Bad(
        "another vendor's resource in the container",
        {CONTAINERS: worker(resources={"requests": {"nvidia.com/gpu": "1"}})},
        "ask for GPUs by spec.gpus, not in the container's resources",
    ),
    Bad(
        "visible devices set by hand",
        {CONTAINERS: worker(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])},
        "variables of devices (GPUPACK_*, NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES) are set",
    ),
    Bad(
        "GPUs for an init container",
        {
            "spec.template.spec.initContainers": [
                {"name": "prepare", "resources": {"limits": {"gpupack.dev/gpu": 1}}}
            ]
        },
        "ask for GPUs by spec.gpus, not in the container's resources",
    ),
    Bad(
        "a priority class that evicts others",
        {"spec.template.spec.priorityClassName": "system-node-critical"},
        "a worker must not evict others one by one; use spec.priority",
    ),
    Bad(
        "a deadline of the pod's own",
        {"spec.template.spec.activeDeadlineSeconds": 2},
        "a pod's own deadline would look like a lost pod; use spec.activeDeadlineSeconds",
    ),
    Bad(
        "a gate that keeps workers from starting",
        {"spec.template.spec.schedulingGates": [{"name": "example.test/later"}]},
        "a gated worker would hold its GPUs and not start; use spec.suspend",
    ),
    Bad(
        "more GPUs than one job can have",
        {"spec.workers": 1024, "spec.gpus": 8},
        "a job can have at most 4096 GPUs in all (workers x gpus); lower one of them",
    ),
    Bad(
        "a label of gpupack's own",
        {"spec.template.metadata.labels": {"gpupack.dev/job": "other"}},
        "labels and annotations under gpupack.dev/ are gpupack's own; remove them",
    ),
    Bad(
        "one worker a node on fewer nodes than workers",
        {"spec.workers": 4, "spec.spread": {"oneWorkerPerNode": True, "maxNodes": 2}},
        "oneWorkerPerNode needs maxNodes of at least workers; raise maxNodes or remove it",
    ),
    Bad(
        "NVLink between the GPUs of a worker that has one",
        {"spec.interconnect": "nvlink"},
        "interconnect: nvlink is between the GPUs of one worker; set gpus to 2 or more",
    ),
    Bad(
        "a name that no Service can have",
        {"metadata.name": "2nd-try"},
        "the name must be lower-case letters, digits and '-', and begin with a letter",
    ),
    Bad(
        "a name with a dot",
        {"metadata.name": "train.v2"},
        "the name must be lower-case letters, digits and '-', and begin with a letter",
    ),
    Bad(
        "a name too long for its pods",
        {"metadata.name": "n" * 53},
        "the name must have at most 52 characters: pods are named after it",
    ),
    Bad(
        "an exit code that means success",
        {"spec.failurePolicy": [{"exitCodes": [0], "action": "Retry"}]},
        "spec.failurePolicy[0].exitCodes[0]: Invalid value: 0: ",
    ),
    Bad(
        "a deadline in the past",
        {"spec.activeDeadlineSeconds": -5},
        "spec.activeDeadlineSeconds: Invalid value: -5: ",
    ),
]
