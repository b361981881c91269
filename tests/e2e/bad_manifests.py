# SPDX-License-Identifier: Apache-2.0
"""Manifests that the API server rejects, each with the message that a user reads.

A row is a name, a change to a good manifest (dotted path → value, REMOVE removes the field) and a
part of the message that `kubectl apply` prints.
"""

import copy
import dataclasses
import json
from typing import Any

REMOVE = object()
CHECKPOINT = "gpupack.dev/checkpointed-at"

_GOOD: dict[str, Any] = {
    "apiVersion": "gpupack.dev/v1beta1",
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
        """Return the good manifest with the change applied."""
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
        """Return the manifest as kubectl reads it."""
        return json.dumps(self.manifest())


GOOD = Bad("nothing", {}, "")

MEMORY_FORM = (
    "memory is a number and one of Ki, Mi, Gi, Ti, k, M, G and T: write 10Gi or 10G, and not "
)
BY_MPIRUN = {"backend": "mpi"}
MPI = {"name": "mpi"}


LEADER = {"name": "leader", "gpus": 1, "workload": {"name": "matmul"}}
LARGE = {"name": "worker", "workers": 512, "gpus": 8, "workload": {"name": "matmul"}}


def roles(*changed: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A job with roles instead of the GPUs and the workload of all workers."""
    changes: dict[str, Any] = {"spec.gpus": REMOVE, "spec.workload": REMOVE}
    changes["spec.roles"] = [
        {key: value for key, value in (LEADER | each).items() if value is not REMOVE}
        for each in changed
    ]
    return changes | {f"spec.{key}": value for key, value in spec.items()}


def worker(**fields: Any) -> list[dict[str, Any]]:
    """Return a template's containers: one worker with these fields."""
    return [{"name": "worker", "image": "example.test/own:1", **fields}]


def share(**fields: Any) -> dict[str, Any]:
    """Return a change from whole GPUs to a share with these fields."""
    return {"spec.gpus": REMOVE, "spec.share": {"percent": 50, "memory": "10Gi"} | fields}


CONTAINERS = "spec.template.spec.containers"

BAD = [
    Bad(
        "a checkpoint that is no time",
        {"metadata.annotations": {CHECKPOINT: "yesterday"}},
        'the annotation gpupack.dev/checkpointed-at is no time (it is "yesterday")',
    ),
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
        "a share of nothing",
        share(percent=0),
        "spec.share.percent: Invalid value: 0: spec.share.percent in body should be greater than "
        "or equal to 1",
    ),
    Bad(
        "a share that is all of a GPU",
        share(percent=100),
        "spec.share.percent: Invalid value: 100: spec.share.percent in body should be less than "
        "or equal to 99",
    ),
    Bad(
        "a share that is more than a GPU",
        share(percent=101),
        "spec.share.percent: Invalid value: 101: spec.share.percent in body should be less than "
        "or equal to 99",
    ),
    Bad(
        "half a percent",
        share(percent=0.5),
        "spec.share.percent: Invalid value: ",
    ),
    Bad(
        "a share without a percentage",
        {"spec.gpus": REMOVE, "spec.share": {"memory": "10Gi"}},
        "spec.share.percent: Required value",
    ),
    Bad(
        "a share without memory",
        {"spec.gpus": REMOVE, "spec.share": {"percent": 50}},
        "spec.share.memory: Required value",
    ),
    Bad(
        "a share of no memory",
        share(memory="0.0Gi"),
        "spec.share.memory: Invalid value: share.memory must be at least 1Mi and less than 1Pi; "
        "write, for example, 10Gi",
    ),
    Bad(
        "a share of so many bytes instead of Gi",
        share(memory="10"),
        "spec.share.memory: Invalid value: share.memory must be at least 1Mi and less than 1Pi; "
        "write, for example, 10Gi",
    ),
    Bad(
        "a share of more memory than any GPU has",
        share(memory="99999999999999999999Ti"),
        "spec.share.memory: Invalid value: share.memory must be at least 1Mi and less than 1Pi; "
        "write, for example, 10Gi",
    ),
    Bad(
        "a share of less than no memory",
        share(memory="-1Gi"),
        MEMORY_FORM + "-1Gi",
    ),
    Bad(
        "a share's memory in words",
        share(memory="a lot"),
        MEMORY_FORM + "a lot",
    ),
    Bad(
        "a share kept within its bounds, which nothing does",
        share(isolation="strict"),
        "shares of a GPU cannot be isolated strictly; request gpus: 1 instead of a "
        "share, with mig: 1g.18gb or another profile for a MIG slice, or set isolation to limited",
    ),
    Bad(
        "NVLink between the GPUs of a worker that has a share",
        share() | {"spec.interconnect": "nvlink"},
        "interconnect: nvlink is between the GPUs of one worker; set gpus to 2 or more",
    ),
    Bad(
        "a resource without its vendor",
        {"spec.resourceName": "gpu"},
        "resourceName must be the full name of an extended resource, such as nvidia.com/gpu",
    ),
    Bad(
        "a resource that is none",
        {"spec.resourceName": "nvidia.com/all gpus"},
        "resourceName must be the full name of an extended resource, such as nvidia.com/gpu",
    ),
    Bad(
        "a resource of Kubernetes itself",
        {"spec.resourceName": "kubernetes.io/batch-cpu"},
        "resourceName must be the full name of an extended resource, such as nvidia.com/gpu",
    ),
    Bad(
        "no resource",
        {"spec.resourceName": ""},
        "resourceName must be the full name of an extended resource, such as nvidia.com/gpu",
    ),
    Bad(
        "slots of shares asked for as a resource",
        {"spec.resourceName": "gpupack.dev/gpu-share"},
        "resourceName is gpupack.dev/gpu or the resource of another device plugin; for a part of "
        "a GPU use share",
    ),
    Bad(
        "a share of a GPU that another plugin hands out",
        share() | {"spec.resourceName": "nvidia.com/gpu"},
        "only GPUs that gpupack assigns can be shared; remove resourceName",
    ),
    Bad(
        "NVLink between GPUs that another plugin chooses",
        {"spec.gpus": 2, "spec.interconnect": "nvlink", "spec.resourceName": "nvidia.com/gpu"},
        "gpupack does not choose the GPUs that another device plugin assigns; remove "
        "interconnect or resourceName",
    ),
    Bad(
        "the other plugin's GPUs asked for in the container",
        {
            "spec.resourceName": "amd.com/gpu",
            CONTAINERS: worker(resources={"limits": {"amd.com/gpu": 8}}),
        },
        "request GPUs with spec.gpus, not with resourceName in the container's resources",
    ),
    Bad(
        "a resource as a model",
        {"spec.gpuModels": ["nvidia.com/gpu: 2"]},
        "write their number as gpus: 2, and a resource such as nvidia.com/gpu as resourceName",
    ),
    Bad(
        "a count with a model",
        {"spec.gpuModels": ["H100", "2x A100-80GB"]},
        "gpuModels has only models, such as A100-80GB",
    ),
    Bad(
        "an order of no models",
        {"spec.gpuModelFallback": {"afterSeconds": 600}},
        "gpuModelFallback needs 2 to 8 different gpuModels, the preferred one first",
    ),
    Bad(
        "an order in which a model is twice",
        {"spec.gpuModels": ["H100", "H100"], "spec.gpuModelFallback": {"afterSeconds": 600}},
        "gpuModelFallback needs 2 to 8 different gpuModels, the preferred one first",
    ),
    Bad(
        "an order of too many models",
        {
            "spec.gpuModels": [f"H{number}" for number in range(9)],
            "spec.gpuModelFallback": {"afterSeconds": 600},
        },
        "gpuModelFallback needs 2 to 8 different gpuModels, the preferred one first",
    ),
    Bad(
        "a step of a second",
        {"spec.gpuModels": ["H100", "A100"], "spec.gpuModelFallback": {"afterSeconds": 1}},
        "spec.gpuModelFallback.afterSeconds: Invalid value: 1: spec.gpuModelFallback.afterSeconds "
        "in body should be greater than or equal to 10",
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
        "nothing to run: set workload.name, or a container with an image",
    ),
    Bad(
        "mpirun's ranks that would come and go",
        {
            "spec.workload": MPI,
            "spec.distributed": BY_MPIRUN,
            "spec.workers": 2,
            "spec.minWorkers": 1,
        },
        "a job of mpirun cannot be elastic; remove minWorkers",
    ),
    Bad(
        "another built-in workload under mpirun",
        {"spec.distributed": BY_MPIRUN},
        "of the built-in workloads only mpi is started by mpirun",
    ),
    Bad(
        "the workload mpi without mpirun",
        {"spec.workload": MPI},
        "of the built-in workloads only mpi is started by mpirun",
    ),
    Bad(
        "mpirun over an image's own command",
        {"spec.workload": REMOVE, "spec.distributed": BY_MPIRUN, CONTAINERS: worker()},
        "each rank runs the container's command",
    ),
    Bad(
        "mpirun over mpirun",
        {
            "spec.workload": REMOVE,
            "spec.distributed": BY_MPIRUN,
            CONTAINERS: worker(command=["/usr/bin/mpirun", "-n", "4", "train"]),
        },
        "gpupack starts mpirun; set command to the program of each rank",
    ),
    Bad(
        "a template with two containers of which none is the worker",
        {
            "spec.workload": REMOVE,
            CONTAINERS: [{"name": name, "image": "example.test/own:1"} for name in ("a", "b")],
        },
        "of several, name one worker",
    ),
    Bad(
        "a priority and a class",
        {"spec.priority": 5, "spec.priorityClassName": "high"},
        "set one of priority and priorityClassName, whose value is the priority",
    ),
    Bad(
        "a grace period of a day",
        {"spec.template.spec.terminationGracePeriodSeconds": 86400},
        "terminationGracePeriodSeconds in body should be less than or equal to 3600",
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
        MEMORY_FORM + "40 gigabytes",
    ),
    Bad("memory in GB", {"spec.minMemory": "10GB"}, MEMORY_FORM + "10GB"),
    Bad("a share's memory in GB", share(memory="10GB"), MEMORY_FORM + "10GB"),
    Bad(
        "a number of GPUs in quotes",
        {"spec.gpus": "1"},
        'spec.gpus: Invalid value: "1": gpus is a number; write it without quotes: 1',
    ),
    Bad(
        "a number of GPUs in words",
        {"spec.gpus": "two", "spec.interconnect": "nvlink"},
        'spec.gpus: Invalid value: "two": gpus is a number; write it without quotes: two',
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
        "request GPUs with spec.gpus or spec.share, not in the container's resources",
    ),
    Bad(
        "another vendor's resource in the container",
        {CONTAINERS: worker(resources={"requests": {"nvidia.com/gpu": "1"}})},
        "request GPUs with spec.gpus or spec.share, not in the container's resources",
    ),
    *(
        Bad(
            f"{name} next to the job's own GPU",
            {CONTAINERS: worker(resources={"limits": {name: 3}})},
            "Remove GPU resources such as nvidia.com/gpumem or amd.com/gpu from the container",
        )
        for name in (
            "nvidia.com/gpumem",
            "nvidia.com/gpucores",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/gpu.shared",
            "amd.com/gpu",
            "amd.com/cpx_nps4",
            "gpu.intel.com/i915",
            "volcano.sh/vgpu-memory",
        )
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
        "request GPUs with spec.gpus or spec.share, not in the container's resources",
    ),
    Bad(
        "a priority class that evicts others",
        {"spec.template.spec.priorityClassName": "system-node-critical"},
        "pods of a gang cannot preempt others one by one; use spec.priority",
    ),
    Bad(
        "a deadline of the pod's own",
        {"spec.template.spec.activeDeadlineSeconds": 2},
        "a deadline of the pod would look like a lost pod; use spec.activeDeadlineSeconds",
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
        "fewer workers than its least",
        {"spec.workers": 2, "spec.minWorkers": 3},
        "minWorkers must not exceed workers; raise workers or lower minWorkers",
    ),
    Bad(
        "no worker at the least",
        {"spec.workers": 2, "spec.minWorkers": 0},
        "spec.minWorkers in body should be greater than or equal to 1",
    ),
    Bad(
        "more workers that come and go than there may be",
        {"spec.workers": 66, "spec.minWorkers": 1, "spec.workload.name": "transformer"},
        "workers - minWorkers can be at most 64; raise minWorkers",
    ),
    Bad(
        "workers that come and go, and rules about all of them",
        {
            "spec.workers": 4,
            "spec.minWorkers": 2,
            "spec.workload.name": "transformer",
            "spec.spread": {"maxNodes": 4},
        },
        "extra workers are placed one by one, without spread; remove spread or minWorkers",
    ),
    Bad(
        "a workload that cannot go on when workers come and go",
        {"spec.workers": 4, "spec.minWorkers": 2, "spec.workload.name": "allreduce"},
        "of the built-in workloads only transformer can be elastic; remove minWorkers",
    ),
    Bad(
        "all workers in one NVLink clique and each on a node of its own",
        {"spec.workers": 2, "spec.spread": {"oneWorkerPerNode": True, "oneClique": True}},
        "oneClique puts all workers on one node; remove oneClique or oneWorkerPerNode",
    ),
    Bad(
        "one NVLink clique among devices that gpupack does not choose",
        {"spec.resourceName": "nvidia.com/gpu", "spec.spread": {"oneClique": True}},
        "gpupack does not choose the GPUs that another device plugin assigns; remove "
        "oneClique or resourceName",
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
    Bad("no role", roles(), "roles is empty; add a role or remove roles"),
    Bad(
        "roles next to GPUs of all workers",
        {"spec.roles": [LEADER]},
        "with roles, what a worker requests and runs stands in each role; move workers, ",
    ),
    Bad("roles next to workers", roles({}, workers=2), "stands in each role; move workers, "),
    Bad("two roles of one name", roles({}, {"gpus": 2}), "spec.roles[1]: Duplicate value"),
    Bad("a role's name of capitals", roles({"name": "Leader"}), "the name of a role must be "),
    Bad("a role's name that ends in a hyphen", roles({"name": "a-"}), "the name of a role must be"),
    Bad("nine roles", roles(*({"name": f"r{n}"} for n in range(9))), "must have at most 8 items"),
    Bad(
        "a role without GPUs",
        roles({}, {"name": "a", "gpus": REMOVE}),
        "set exactly one of gpus (whole GPUs for each worker of the role) and share",
    ),
    Bad(
        "a role with nothing to run",
        roles({"workload": REMOVE}),
        "nothing to run: set workload.name of the role, or a container",
    ),
    Bad(
        "a role that mpirun starts",
        roles({"workload": MPI}),
        "the workload mpi is started by mpirun",
    ),
    Bad(
        "roles with too many workers in all",
        roles({"workers": 1024}, {"name": "a"}),
        "a job can have at most 1024 workers in all roles together",
    ),
    Bad(
        "roles with too many GPUs in all",
        roles({}, LARGE),
        "a job can have at most 4096 GPUs in all (workers x gpus of each role)",
    ),
    Bad(
        "extra workers next to roles",
        roles({}, minWorkers=1),
        "an elastic job has workers of one kind; remove minWorkers or roles",
    ),
    Bad(
        "roles whose workers share pods",
        roles({}, podPerWorker=False),
        "each worker of a job with roles has its own pod; remove podPerWorker or roles",
    ),
    Bad("slices for roles", roles({}, mig="1g.18gb"), "MIG slices are for jobs whose workers"),
    Bad(
        "roles of another plugin's GPUs",
        roles({}, resourceName="nvidia.com/gpu"),
        "roles are for GPUs that gpupack assigns; remove resourceName or roles",
    ),
    Bad("roles by mpirun", roles({}, distributed=BY_MPIRUN), "mpirun starts equal workers only"),
    Bad(
        "a role on too few nodes",
        roles({"workers": 3, "spread": {"maxNodes": 2, "oneWorkerPerNode": True}}),
        "oneWorkerPerNode needs maxNodes of at least workers",
    ),
    Bad(
        "all roles on too few nodes",
        roles({}, {"name": "a"}, spread={"maxNodes": 1, "oneWorkerPerNode": True}),
        "oneWorkerPerNode needs maxNodes of at least the workers of all roles",
    ),
    Bad(
        "GPUs of a role by hand",
        roles(
            {
                "template": {
                    "spec": {"containers": worker(resources={"limits": {"nvidia.com/gpu": 1}})}
                }
            }
        ),
        "request GPUs with spec.gpus or spec.share",
    ),
    Bad(
        "roles with more conditions about nodes than a job may have",
        roles(
            *(
                {
                    "name": f"r{n}",
                    "template": {
                        "spec": {
                            "tolerations": [
                                {"key": f"k{n}", "operator": "Exists"} for n in range(300)
                            ]
                        }
                    },
                }
                for n in range(2)
            )
        ),
        "topology spread of all roles may have 512 terms and expressions in all, not 600",
    ),
    Bad(
        "a deadline in the past",
        {"spec.activeDeadlineSeconds": -5},
        "spec.activeDeadlineSeconds: Invalid value: -5: ",
    ),
]

GOOD_TOO = [
    Bad("roles of different sizes", roles({}, {"name": "w-2", "gpus": 8, "workers": 511}), ""),
    Bad(
        "constraints for a role and for the job", roles({"spread": {"maxNodes": 1}}, spread={}), ""
    ),
    Bad("a checkpoint", {"metadata.annotations": {CHECKPOINT: "2026-01-31T12:00:00.5+01:00"}}, ""),
    Bad("a share", share(), ""),
    Bad("a share that says how it is kept apart", share(isolation="cooperative"), ""),
    Bad("a share that is limited", share(isolation="limited"), ""),
    Bad("a share next to shares of its own namespace only", share(shareWith="namespace"), ""),
    Bad("the smallest share", share(percent=1, memory="1Mi"), ""),
    Bad("the largest share", share(percent=99, memory="0.5Ti"), ""),
    Bad("our own resource by name", {"spec.resourceName": "gpupack.dev/gpu"}, ""),
    Bad("GPUs that another plugin hands out", {"spec.resourceName": "nvidia.com/gpu"}, ""),
    Bad("GPUs of another vendor", {"spec.resourceName": "amd.com/gpu"}, ""),
    Bad(
        "NICs of a vendor that has GPUs, too",
        {
            "spec.workload": REMOVE,
            CONTAINERS: worker(resources={"limits": {"nvidia.com/hostdev": 1, "rdma/hca": 1}}),
        },
        "",
    ),
]
"""Changes after which the manifest is still valid."""

FIXED = [
    ("share", share(), {"share": {"percent": 60}}),
    ("share", share(), {"share": {"memory": "11Gi"}}),
    ("share", share(), {"share": None, "gpus": 1}),
    ("resourceName", {}, {"resourceName": "nvidia.com/gpu"}),
    ("gpus", {}, {"gpus": 2}),
    ("roles", roles({}), {"roles": [LEADER | {"gpus": 2}]}),
    ("minWorkers", {}, {"minWorkers": 1}),
]
"""A field, a job, and a patch of its spec that would change the field once the job exists."""
