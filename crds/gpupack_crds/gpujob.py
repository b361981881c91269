# SPDX-License-Identifier: Apache-2.0
"""GPUJob, the user's side: what to run, on how many GPUs, and what to do when it fails."""

import itertools
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec

from gpupack_crds.names import (
    EXTENDED_RESOURCE,
    GPU,
    GPU_SHARE,
    GROUP,
    MAX_JOB_NAME,
    MIG_PROFILE,
    mig_resource,
)
from gpupack_crds.template import Template
from gpupack_crds.wire import INT_OR_STRING, Rule, Wire, described, ruled

PolicyName = Literal[
    "best-fit",
    "bid-price",
    "dot-product",
    "fgd",
    "first-fit",
    "gpu-clustering",
    "gpu-packing",
    "pace",
    "random",
    "worst-fit",
]
Interconnect = Literal["any", "nvlink"]
Backend = Literal["auto", "nccl", "gloo", "mpi"]
WorkloadName = Literal[
    "allreduce",
    "attention",
    "burn-in",
    "collectives",
    "cuda-matmul",
    "device-query",
    "gemm",
    "gpu-manager",
    "inference-load",
    "llm-kernels",
    "matmul",
    "matmul-multi",
    "mpi",
    "p2p",
    "p2p-cpp",
    "profile",
    "resnet50",
    "softmax",
    "symmetric-memory",
    "thunderkittens",
    "train-cnn",
    "transformer",
    "vector-add",
]
FailureAction = Literal["Retry", "Fail", "Ignore"]
Isolation = Literal["cooperative", "limited", "strict"]
ShareWith = Literal["anyone", "namespace"]

ELASTIC_WORKLOAD: Final = "transformer"
"""The built-in workload whose workers may start and end while it runs."""
MPI_WORKLOAD: Final = "mpi"
"""The built-in workload whose processes mpirun starts."""

MAX_WORKERS = 1024
MAX_EXTRA_WORKERS = 64
"""Maximum of an elastic gang: each extra worker is a Job of its own."""
MAX_GPUS = 4096
"""Maximum of all workers of a job together."""
MAX_ROLES = 8
"""Maximum of a job: each role is a request of its own in a plan."""
MAX_REVISIONS = 1_000_000
MAX_ORDERED_MODELS = 8
"""Maximum of gpuModels with gpuModelFallback: each is another request in the queue."""
MIN_FALLBACK_SECONDS = 10
"""Minimum time before the next model is permitted: each step is planned again."""

PODS_ARE_SHARED_BY_DEFAULT: Final = True
"""Meaning of an absent podPerWorker; True: workers of one node share a pod if they can."""

MEMORY_PATTERN = "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
GPUS_FORM = "gpus is a number; write it without quotes"
MEMORY_FORM = "memory is a number and one of Ki, Mi, Gi, Ti, k, M, G and T: write 10Gi or 10G"

Memory = Annotated[
    str,
    described(
        "Memory of one GPU as a quantity such as 30Gi.",
        pattern=MEMORY_PATTERN,
        max_length=32,
        schema=ruled(
            Rule(
                f"self.matches('{MEMORY_PATTERN}')",
                MEMORY_FORM,
                said=f"'{MEMORY_FORM}, and not ' + self",
            )
        ),
    ),
]


class Share(Wire, frozen=True):
    """A part of one GPU.

    Percent and memory are what placement counts. What keeps a process within them is said by
    isolation.
    """

    percent: Annotated[
        int,
        described(
            "Percent of one GPU's compute, 1 to 99. For a whole GPU set gpus: 1.", ge=1, le=99
        ),
    ]
    memory: Annotated[Memory, described("Memory of that GPU, as a quantity such as 30Gi.")]
    isolation: Annotated[
        Isolation,
        described(
            "cooperative: time slicing; percent and memory are counted for placement and not "
            "enforced. limited: CUDA MPS enforces both for each process; a container that exceeds "
            "its memory is killed. A malicious program can escape MPS, and a fault in one share "
            "fails all shares of the GPU. strict: refused; request MIG slices or whole GPUs. "
            "Default: cooperative."
        ),
    ] = "cooperative"
    share_with: Annotated[
        ShareWith,
        described(
            "anyone: shares of any namespace that also set anyone may be on the same GPU. "
            "namespace: only shares of this namespace. Shares on one GPU have the same isolation "
            "and the same shareWith. Default: anyone."
        ),
    ] = "anyone"

    rules: ClassVar = (
        # 10 instead of 10Gi would request 10 bytes of a GPU.
        Rule(
            f"!self.memory.matches('{MEMORY_PATTERN}') || "
            "(!quantity(self.memory).isLessThan(quantity('1Mi')) && "
            "quantity(self.memory).isLessThan(quantity('1Pi')))",
            "share.memory must be at least 1Mi and less than 1Pi; write, for example, 10Gi",
            ".memory",
        ),
        Rule(
            "self.isolation != 'strict'",
            "shares of a GPU cannot be isolated strictly; request gpus: 1 instead of a share, with "
            "mig: 1g.18gb or another profile for a MIG slice, or set isolation to limited",
            ".isolation",
        ),
    )


class Spread(Wire, frozen=True):
    """Rules about the nodes that the workers of one job land on."""

    max_nodes: (
        Annotated[
            int,
            described("Maximum number of nodes for all workers. Default: no limit.", ge=1, le=1024),
        ]
        | None
    ) = None
    one_worker_per_node: Annotated[
        bool, described("True: at most one worker per node. Default: false.")
    ] = False
    one_clique: Annotated[
        bool,
        described(
            "True: the GPUs of all workers are in one NVLink clique of one node. A GPU without "
            "NVLink is a clique of one GPU. Default: false."
        ),
    ] = False


class GpuModelFallback(Wire, frozen=True):
    """An order of preference among gpuModels."""

    after_seconds: Annotated[
        int,
        described(
            "Pending time in seconds that permits one more model of gpuModels. The job waits for "
            "the first model so long, then for the first two, and so on.",
            ge=MIN_FALLBACK_SECONDS,
            le=31_536_000,
        ),
    ]


class Workload(Wire, frozen=True):
    """A built-in workload."""

    name: Annotated[WorkloadName, described("Name of the built-in workload.")]
    args: Annotated[
        tuple[Annotated[str, described("One argument.", max_length=256)], ...],
        described("Arguments of the workload, such as --size=1024.", max_length=32),
    ] = ()


class Distributed(Wire, frozen=True):
    """How the processes of a job find and talk to each other."""

    backend: Annotated[
        Backend,
        described(
            "Backend of torch.distributed. auto: nccl on whole GPUs, gloo on shares and simulated "
            "GPUs. mpi: worker 0 starts the command with the image's mpirun, processesPerWorker "
            "ranks in each worker. Default: auto."
        ),
    ] = "auto"
    processes_per_worker: (
        Annotated[
            int, described("Processes in each worker. Default: one for each GPU.", ge=1, le=64)
        ]
        | None
    ) = None


ROLE_NAME = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
MAX_ROLE_NAME = 32

Gpus = Annotated[
    int,
    described(
        "Whole GPUs for each worker; with mig, the number of MIG slices. Set exactly one of gpus "
        "and share.",
        ge=1,
        le=64,
        schema=INT_OR_STRING
        | ruled(Rule("type(self) == int", GPUS_FORM, said=f"'{GPUS_FORM}: ' + self")),
    ),
]
GpuModels = Annotated[
    tuple[Annotated[str, described("A model, such as H100.", min_length=1, max_length=64)], ...],
    described(
        "Permitted GPU models, such as V100, A100-80GB, h100 sxm or MI300X. Words of the product "
        "name are enough, case does not matter, and a size in GB is that of the data sheet. "
        "Default: any model.",
        max_length=16,
    ),
]

MinMemory = Annotated[Memory, described("Minimum memory of each GPU, such as 40Gi. Default: any.")]
Link = Annotated[
    Interconnect,
    described(
        "nvlink: the GPUs of one worker are connected by NVLink. any: no condition. Default: any."
    ),
]

_MODELS_RULE = Rule(
    "!has(self.gpuModels) || self.gpuModels.all(m, !m.matches('[:=]|^ *[0-9]+ *[xX*]|[.][a-z]+/'))",
    "gpuModels has only models, such as A100-80GB; write their number as gpus: 2, and a "
    "resource such as nvidia.com/gpu as resourceName",
    ".gpuModels",
)
_LINK_RULE = Rule(
    "self.interconnect != 'nvlink' || "
    "(has(self.gpus) && (type(self.gpus) != int || self.gpus >= 2))",
    "interconnect: nvlink is between the GPUs of one worker; set gpus to 2 or more",
    ".interconnect",
)
_NODES_RULE = Rule(
    "!has(self.spread) || !has(self.spread.maxNodes) || "
    "!has(self.spread.oneWorkerPerNode) || !self.spread.oneWorkerPerNode || "
    "self.spread.maxNodes >= self.workers",
    "oneWorkerPerNode needs maxNodes of at least workers; raise maxNodes or remove it",
    ".spread",
)
_CLIQUE_RULE = Rule(
    "!has(self.spread) || !has(self.spread.oneClique) || !self.spread.oneClique || "
    "!has(self.spread.oneWorkerPerNode) || !self.spread.oneWorkerPerNode || "
    "self.workers == 1",
    "oneClique puts all workers on one node; remove oneClique or oneWorkerPerNode",
    ".spread",
)
_RUNS_SOMETHING = (
    "has(self.workload) || (has(self.template) && has(self.template.spec) && "
    "has(self.template.spec.containers) && self.template.spec.containers.exists("
    "c, (c.name == 'worker' || size(self.template.spec.containers) == 1) && "
    "has(c.image) && size(c.image) > 0))"
)


class Role(Wire, frozen=True):
    """Identical workers of a job that has workers of several kinds."""

    name: Annotated[
        str,
        described(
            "Name of the role, such as leader: lower-case letters, digits and '-'.",
            min_length=1,
            max_length=MAX_ROLE_NAME,
        ),
    ]
    workers: Annotated[
        int, described("Number of workers of the role. Default: 1.", ge=1, le=MAX_WORKERS)
    ] = 1
    gpus: Gpus | None = None
    share: Annotated[
        Share | None,
        described("A part of one GPU for each worker. Set exactly one of gpus and share."),
    ] = None
    gpu_models: GpuModels = ()
    min_memory: MinMemory | None = None
    interconnect: Link = "any"
    spread: Annotated[
        Spread | None,
        described("Rules for the nodes of the role's workers, in addition to those of the job."),
    ] = None
    workload: Annotated[
        Workload | None,
        described("Built-in workload for the worker container, instead of an own image."),
    ] = None
    template: Annotated[
        Template | None, described("Partial pod template that is merged over gpupack's own.")
    ] = None

    rules: ClassVar = (
        Rule(
            f"self.name.matches('{ROLE_NAME}')",
            "the name of a role must be lower-case letters, digits and '-', and begin with a "
            "letter, such as leader",
            ".name",
        ),
        Rule(
            "has(self.gpus) != has(self.share)",
            "set exactly one of gpus (whole GPUs for each worker of the role) and share (a part of "
            "one GPU)",
        ),
        Rule(
            f"!has(self.workload) || self.workload.name != '{MPI_WORKLOAD}'",
            f"the workload {MPI_WORKLOAD} is started by mpirun, which starts equal workers only; "
            "remove it from the role",
            ".workload",
        ),
        Rule(
            _RUNS_SOMETHING,
            "nothing to run: set workload.name of the role, or a container with an image in its "
            "template.spec.containers; of several, name one worker",
        ),
        _NODES_RULE,
        _CLIQUE_RULE,
        _MODELS_RULE,
        _LINK_RULE,
    )


class FailureRule(Wire, frozen=True):
    """What to do when the worker container ends with one of these exit codes."""

    exit_codes: Annotated[
        tuple[Annotated[int, described("One exit code.", ge=1, le=255)], ...],
        described("Exit codes to which the rule applies.", min_length=1, max_length=32),
    ]
    action: Annotated[
        FailureAction,
        described(
            "Retry: the gang restarts, and the failure does not count against maxRestarts. Fail: "
            "the job fails at once. Ignore: the worker counts as succeeded."
        ),
    ]


_BY_MPIRUN = "has(self.distributed) && self.distributed.backend == 'mpi'"

_ASKS_BY_HAND = (
    "has(c.resources) && "
    "((has(c.resources.limits) && self.resourceName in c.resources.limits) || "
    "(has(c.resources.requests) && self.resourceName in c.resources.requests))"
)


_OF_A_ROLE = (
    "gpus",
    "share",
    "gpuModels",
    "minMemory",
    "workload",
    "template",
)
"""Fields that stand in each role where there are roles."""
_ALL_ALIKE = {
    "minWorkers": "an elastic job has workers of one kind",
    "podPerWorker": "each worker of a job with roles has its own pod",
    "mig": "MIG slices are for jobs whose workers are alike",
    "gpuModelFallback": "models in order of preference are for jobs whose workers are alike",
}
"""Fields that jobs with roles cannot have, and why."""

_ROLE_RULES = (
    Rule(
        "!has(self.roles) || size(self.roles) > 0",
        "roles is empty; add a role or remove roles",
        ".roles",
    ),
    Rule(
        "!has(self.roles) || (self.workers == 1 && self.interconnect == 'any' && "
        + " && ".join(f"!has(self.{name})" for name in _OF_A_ROLE)
        + ")",
        "with roles, what a worker requests and runs stands in each role; move workers, "
        f"interconnect, {', '.join(_OF_A_ROLE[:-1])} and {_OF_A_ROLE[-1]} into the roles",
        ".roles",
    ),
    *(
        Rule(f"!has(self.roles) || !has(self.{name})", f"{why}; remove {name} or roles", f".{name}")
        for name, why in _ALL_ALIKE.items()
    ),
    Rule(
        f"!has(self.roles) || self.resourceName == '{GPU}'",
        "roles are for GPUs that gpupack assigns; remove resourceName or roles",
        ".resourceName",
    ),
    Rule(
        f"!has(self.roles) || !({_BY_MPIRUN})",
        "mpirun starts equal workers only; set another distributed.backend, or remove roles",
        ".distributed",
    ),
    Rule(
        f"!has(self.roles) || self.roles.map(r, r.workers).sum() <= {MAX_WORKERS}",
        f"a job can have at most {MAX_WORKERS} workers in all roles together; lower one of them",
        ".roles",
    ),
    Rule(
        "!has(self.roles) || self.roles.map(r, has(r.gpus) && type(r.gpus) == int ? "
        f"r.workers * int(r.gpus) : r.workers).sum() <= {MAX_GPUS}",
        f"a job can have at most {MAX_GPUS} GPUs in all (workers x gpus of each role); lower one "
        "of them",
        ".roles",
    ),
    Rule(
        "!has(self.roles) || !has(self.spread) || !has(self.spread.maxNodes) || "
        "!has(self.spread.oneWorkerPerNode) || !self.spread.oneWorkerPerNode || "
        "self.spread.maxNodes >= self.roles.map(r, r.workers).sum()",
        "oneWorkerPerNode needs maxNodes of at least the workers of all roles; raise maxNodes or "
        "remove it",
        ".spread",
    ),
    Rule(
        "!has(self.roles) || !has(self.spread) || !has(self.spread.oneClique) || "
        "!self.spread.oneClique || !has(self.spread.oneWorkerPerNode) || "
        "!self.spread.oneWorkerPerNode || self.roles.map(r, r.workers).sum() == 1",
        "oneClique puts all workers on one node; remove oneClique or oneWorkerPerNode",
        ".spread",
    ),
)


class GpuJobSpec(Wire, frozen=True):
    """What to run, on how many GPUs, and what to do when it fails.

    Workers start together or not at all, minWorkers of them where that is said. Everything but
    suspend, movable, priority, maxRestarts, activeDeadlineSeconds and ttlSecondsAfterFinished is
    fixed once the job exists; with a higher revision workload, template and distributed may change.
    """

    roles: Annotated[
        tuple[Role, ...],
        described(
            "Workers of several kinds, such as a leader and its workers: all of them start "
            "together or not at all, and end together. What each worker runs and requests stands "
            "in its role instead of the job. Indices of workers count through the roles in their "
            "order. Default: all workers are alike.",
            max_length=MAX_ROLES,
            schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    workers: Annotated[
        int,
        described(
            "Number of workers. All of them start together, unless minWorkers is set. Default: 1.",
            ge=1,
            le=MAX_WORKERS,
        ),
    ] = 1
    min_workers: (
        Annotated[
            int,
            described(
                "Makes the job elastic: this many workers start together or not at all. The "
                "others, up to workers, are extra workers: they run while no pending job needs "
                "their GPUs. The program must support a changing number of workers, as torchrun's "
                "elastic rendezvous does. Default: workers.",
                ge=1,
                le=MAX_WORKERS,
            ),
        ]
        | None
    ) = None
    gpus: Gpus | None = None
    mig: (
        Annotated[
            str,
            described(
                "Profile of MIG slices as in nvidia-smi, such as 1g.18gb; gpus is then their "
                "number. The slices of a worker may be on different GPUs of its node. gpupack "
                "uses existing slices and creates none for a job.",
                max_length=32,
            ),
        ]
        | None
    ) = None
    share: Annotated[
        Share | None,
        described("A part of one GPU for each worker. Set exactly one of gpus and share."),
    ] = None
    pod_per_worker: (
        Annotated[
            bool,
            described(
                "Absent: workers of the job on one node share a pod, with one container each, so "
                "that they reach each other over NVLink and shared memory. Each worker has its "
                "own pod where this is impossible: the worker's container has a containerPort or "
                "a probe with a port, the template sets resources of the pod, the API server "
                "refuses the larger pod, or an own image is started by mpirun. False: workers "
                "share a pod, and the job fails where this is impossible; mpirun must be that of "
                "Open MPI. True: each worker has its own pod. Workers of elastic jobs, of MIG "
                "slices, of shares and of GPUs of other device plugins always have their own "
                "pods."
            ),
        ]
        | None
    ) = None
    resource_name: Annotated[
        str,
        described(
            "Extended resource with which the GPUs are requested. For another one than "
            "gpupack.dev/gpu, such as nvidia.com/gpu, the job goes to nodes of that device "
            "plugin: gpupack chooses the node, and the device plugin chooses the GPUs. Default: "
            "gpupack.dev/gpu.",
            max_length=253,
        ),
    ] = GPU
    gpu_models: GpuModels = ()
    gpu_model_fallback: Annotated[
        GpuModelFallback | None,
        described(
            "Makes gpuModels an order of preference: the job waits for its first model, and uses "
            "a later one only after the time given here. A model on which the job can never start "
            "is not waited for. The time counts from creation, resumption or the end of the last "
            "attempt. Default: all models are permitted from the start, in no order."
        ),
    ] = None
    min_memory: MinMemory | None = None
    interconnect: Link = "any"
    spread: Annotated[
        Spread | None, described("Rules for the nodes of the workers. Default: none.")
    ] = None
    policy: (
        Annotated[
            PolicyName,
            described("Placement policy of this job. Default: that of the cluster."),
        ]
        | None
    ) = None
    reservation: (
        Annotated[
            str,
            described(
                "Name of a GPUReservation of the namespace. In its window the job uses the GPUs "
                "that are reserved; at other times it waits like others. Default: none.",
                min_length=1,
                max_length=253,
                pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            ),
        ]
        | None
    ) = None
    priority: Annotated[
        int,
        described(
            "Jobs of higher priority come first in the queue. A number above the cluster's limit "
            "(default 0) is refused; use priorityClassName for it. Default: 0.",
            ge=-1_000_000_000,
            le=1_000_000_000,
        ),
    ] = 0
    priority_class_name: (
        Annotated[
            str,
            described(
                "PriorityClass with preemptionPolicy: Never, instead of priority. Its value is "
                "the job's priority. The pods have the class, so a ResourceQuota can limit its "
                "use.",
                min_length=1,
                max_length=253,
                pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            ),
        ]
        | None
    ) = None
    workload: Annotated[
        Workload | None,
        described("Built-in workload for the worker container, instead of an own image."),
    ] = None
    template: Annotated[
        Template | None, described("Partial pod template that is merged over gpupack's own.")
    ] = None
    distributed: Annotated[
        Distributed | None, described("How the processes of the job communicate.")
    ] = None
    failure_policy: Annotated[
        tuple[FailureRule, ...],
        described(
            "Rules by exit code; the first rule that matches applies. Default: each failure "
            "counts against maxRestarts.",
            max_length=20,
        ),
    ] = ()
    max_restarts: Annotated[
        int,
        described(
            "Number of restarts after failures. The pause before a restart is 1 s, and doubles "
            "with each failure in a row up to 60 s. Lost nodes and other infrastructure failures "
            "do not count. Default: 0.",
            ge=0,
            le=100,
        ),
    ] = 0
    active_deadline_seconds: (
        Annotated[
            int,
            described(
                "Limit for the total time of all attempts in seconds, each from its admission to "
                "its end; the job fails at the limit. Pending and suspended time does not count. "
                "After the first admission it can only be lowered. Default: no limit.",
                ge=1,
                le=31_536_000,
            ),
        ]
        | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[
            int,
            described(
                "Seconds after the end of the job at which it is deleted. Default: it is kept.",
                ge=0,
                le=31_536_000,
            ),
        ]
        | None
    ) = None
    revision: Annotated[
        int,
        described(
            "Increase to change workload, template or distributed: the running attempt is stopped "
            "and restarts with the new values on the same GPUs. It does not count as a restart, "
            "and the deadline does not change. A second increase takes effect when the attempt is "
            "one minute old. Default: 0.",
            ge=0,
            le=MAX_REVISIONS,
        ),
    ] = 0
    suspend: Annotated[
        bool,
        described(
            "True: the job is stopped and releases its GPUs until this is false. Default: false."
        ),
    ] = False

    movable: Annotated[
        bool,
        described(
            "True: the job writes checkpoints and continues from the last one, so gpupack may "
            "restart it on other GPUs, for a maintenance or to defragment. Default: false."
        ),
    ] = False

    def __post_init__(self) -> None:
        """Count the workers of all roles: `workers` is the number of workers of the job."""
        if self.roles:
            workers = sum(role.workers for role in self.roles)
            msgspec.structs.force_setattr(self, "workers", workers)

    def of_role(self, role: Role) -> Self:
        """Return the spec with what a role's workers request and run.

        `workers` and `roles` stay those of the whole job.
        """
        return msgspec.structs.replace(
            self,
            gpus=role.gpus,
            share=role.share,
            gpu_models=role.gpu_models,
            min_memory=role.min_memory,
            interconnect=role.interconnect,
            spread=role.spread,
            workload=role.workload,
            template=role.template,
        )

    def role_of(self, worker: int) -> Role | None:
        """Return the role of a worker by its index; None: the job has no roles, or no such worker.

        The last role's workers have the largest indices.
        """
        return next((role for role, indices in self.role_indices if worker in indices), None)

    def of_worker(self, worker: int) -> Self:
        """Return the spec with what a worker requests and runs."""
        role = self.role_of(worker)
        return self if role is None else self.of_role(role)

    @property
    def role_indices(self) -> tuple[tuple[Role, range], ...]:
        """The roles, and the indices of the workers of each."""
        ends = itertools.accumulate(role.workers for role in self.roles)
        return tuple(
            (role, range(end - role.workers, end))
            for role, end in zip(self.roles, ends, strict=True)
        )

    @property
    def least(self) -> int:
        """Number of workers that start together or not at all; their indices start at 0."""
        return min(self.min_workers or self.workers, self.workers)

    @property
    def extra(self) -> int:
        """Number of extra workers that may run in addition; their indices start at `least`."""
        return min(self.workers - self.least, MAX_EXTRA_WORKERS)

    @property
    def may_share_pods(self) -> bool:
        """Whether workers on one node are to share a pod, if their template allows it."""
        # MPIs with Hydra cannot start a rank in another container, and the image is unknown here.
        unknown_mpi = self.by_mpirun and self.workload is None
        separate = not PODS_ARE_SHARED_BY_DEFAULT or unknown_mpi
        if self.pod_per_worker is not None:
            separate = self.pod_per_worker
        whole_gpus = self.share is None and self.mig is None and self.resource_name == GPU
        alike = not self.extra and not self.roles
        return not separate and self.least > 1 and whole_gpus and alike

    @property
    def by_mpirun(self) -> bool:
        """Whether mpirun starts the processes."""
        return self.distributed is not None and self.distributed.backend == "mpi"

    @property
    def gpu_resource(self) -> str:
        """Name of the resource that marks a worker's GPU container."""
        if self.mig is not None:
            return mig_resource(self.mig)
        return self.resource_name if self.share is None else GPU_SHARE

    @property
    def model_fallback_seconds(self) -> float | None:
        """Pending time that permits one more model; None: the models have no order."""
        return None if self.gpu_model_fallback is None else self.gpu_model_fallback.after_seconds

    @property
    def ignores_failures(self) -> bool:
        """Whether there are exit codes with which a worker counts as succeeded."""
        return any(rule.action == "Ignore" for rule in self.failure_policy)

    rules: ClassVar = (
        Rule(
            "has(self.roles) || has(self.gpus) != has(self.share)",
            "set exactly one of gpus (whole GPUs for each worker) and share (a part of one GPU)",
        ),
        *_ROLE_RULES,
        Rule(
            f"!has(self.mig) || self.mig.matches('{MIG_PROFILE}')",
            "mig is the profile of MIG slices as nvidia-smi has it, such as 1g.18gb or 3g.71gb",
            ".mig",
        ),
        Rule(
            "!has(self.mig) || !has(self.share)",
            "MIG slices cannot be shared; remove share and set gpus to the number of slices of "
            "each worker, or remove mig",
            ".mig",
        ),
        Rule(
            f"!has(self.mig) || self.resourceName == '{GPU}'",
            "mig requests slices that gpupack assigns; remove resourceName, or for slices of "
            "another device plugin set resourceName to their resource and remove mig",
            ".mig",
        ),
        Rule(
            "!has(self.mig) || (self.interconnect != 'nvlink' && (!has(self.spread) || "
            "!has(self.spread.oneClique) || !self.spread.oneClique))",
            "MIG slices have no NVLink; remove interconnect and spread.oneClique, or mig",
            ".mig",
        ),
        Rule(
            "!has(self.priorityClassName) || self.priority == 0",
            "set one of priority and priorityClassName, whose value is the priority",
            ".priorityClassName",
        ),
        Rule(
            f"!has(self.gpus) || type(self.gpus) != int || self.workers * self.gpus <= {MAX_GPUS}",
            f"a job can have at most {MAX_GPUS} GPUs in all (workers x gpus); lower one of them",
        ),
        Rule(
            "!has(self.minWorkers) || self.minWorkers <= self.workers",
            "minWorkers must not exceed workers; raise workers or lower minWorkers",
            ".minWorkers",
        ),
        Rule(
            f"!has(self.minWorkers) || self.workers - self.minWorkers <= {MAX_EXTRA_WORKERS}",
            f"workers - minWorkers can be at most {MAX_EXTRA_WORKERS}; raise minWorkers",
            ".minWorkers",
        ),
        Rule(
            "!has(self.minWorkers) || self.minWorkers == self.workers || !has(self.spread)",
            "extra workers are placed one by one, without spread; remove spread or minWorkers",
            ".minWorkers",
        ),
        Rule(
            "!has(self.minWorkers) || self.minWorkers == self.workers || !has(self.workload) || "
            f"self.workload.name == '{ELASTIC_WORKLOAD}'",
            f"of the built-in workloads only {ELASTIC_WORKLOAD} can be elastic; remove minWorkers",
            ".minWorkers",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || !has(self.minWorkers) || self.minWorkers == self.workers",
            "a job of mpirun cannot be elastic; remove minWorkers, or set another "
            "distributed.backend",
            ".minWorkers",
        ),
        Rule(
            f"!has(self.workload) || ({_BY_MPIRUN}) == (self.workload.name == '{MPI_WORKLOAD}')",
            f"of the built-in workloads only {MPI_WORKLOAD} is started by mpirun; set "
            "distributed.backend to mpi for it and to another value for others",
            ".workload",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || has(self.workload) || !has(self.template) || "
            "!has(self.template.spec) || !has(self.template.spec.containers) || "
            "self.template.spec.containers.all("
            "c, (c.name != 'worker' && size(self.template.spec.containers) > 1) || "
            "(has(c.command) && size(c.command) > 0))",
            "with distributed.backend mpi each rank runs the container's command, and the image's "
            "default is unknown; set command",
            ".template",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || !has(self.template) || "
            "!has(self.template.spec) || !has(self.template.spec.containers) || "
            "self.template.spec.containers.all("
            "c, (c.name != 'worker' && size(self.template.spec.containers) > 1) || "
            "!has(c.command) || size(c.command) == 0 || "
            "!c.command[0].matches('(^|/)mpi(run|exec)$'))",
            "with distributed.backend mpi gpupack starts mpirun; set command to the program of "
            "each rank, and distributed.processesPerWorker to the number of ranks",
            ".template",
        ),
        Rule(
            f"has(self.roles) || {_RUNS_SOMETHING}",
            "nothing to run: set workload.name, or a container with an image in "
            "template.spec.containers; of several, name one worker",
        ),
        *(
            Rule(
                f"has(self.roles) || {each.cel}",
                each.message,
                each.field_path,
            )
            for each in (_NODES_RULE, _CLIQUE_RULE)
        ),
        Rule(
            f"self.resourceName == '{GPU}' || "
            "!has(self.spread) || !has(self.spread.oneClique) || !self.spread.oneClique",
            "gpupack does not choose the GPUs that another device plugin assigns; remove "
            "oneClique or resourceName",
            ".spread",
        ),
        _MODELS_RULE,
        Rule(
            "!has(self.gpuModelFallback) || (has(self.gpuModels) && size(self.gpuModels) >= 2 && "
            f"size(self.gpuModels) <= {MAX_ORDERED_MODELS} && "
            "self.gpuModels.all(m, self.gpuModels.exists_one(n, n == m)))",
            f"gpuModelFallback needs 2 to {MAX_ORDERED_MODELS} different gpuModels, the preferred "
            "one first",
            ".gpuModelFallback",
        ),
        _LINK_RULE,
        Rule(
            f"self.resourceName.matches('{EXTENDED_RESOURCE}') && "
            "!self.resourceName.contains('kubernetes.io/') && "
            "!self.resourceName.startsWith('requests.')",
            "resourceName must be the full name of an extended resource, such as nvidia.com/gpu",
            ".resourceName",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || !self.resourceName.startsWith('{GROUP}/')",
            f"resourceName is {GPU} or the resource of another device plugin; for a part of a GPU "
            "use share",
            ".resourceName",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || !has(self.share)",
            f"only GPUs that gpupack assigns can be shared; remove resourceName (or set {GPU}), "
            "or request whole GPUs with gpus",
            ".resourceName",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || self.interconnect != 'nvlink'",
            "gpupack does not choose the GPUs that another device plugin assigns; remove "
            "interconnect or resourceName",
            ".interconnect",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || "
            "!has(self.template) || !has(self.template.spec) || "
            "!((has(self.template.spec.containers) && "
            f"self.template.spec.containers.exists(c, {_ASKS_BY_HAND})) || "
            "(has(self.template.spec.initContainers) && "
            f"self.template.spec.initContainers.exists(c, {_ASKS_BY_HAND})))",
            "request GPUs with spec.gpus, not with resourceName in the container's resources",
            ".template",
        ),
    )


FIXED_FIELDS = (
    "roles",
    "workers",
    "minWorkers",
    "gpus",
    "share",
    "mig",
    "podPerWorker",
    "resourceName",
    "gpuModels",
    "gpuModelFallback",
    "minMemory",
    "interconnect",
    "spread",
    "policy",
    "reservation",
    "priorityClassName",
    "failurePolicy",
)
"""Fields that cannot change once a job exists: an attempt may already run with them."""

REVISED_FIELDS = ("workload", "template", "distributed")
"""Fields that can change only with a higher revision: the running attempt is stopped first."""


def fixed_rule(field: str) -> Rule:
    """Return a transition rule that refuses any change of one field."""
    return Rule(
        _unchanged(field),
        f"{field} cannot change after the job is created; delete the job and apply it again",
        f".{field}",
    )


def revised_rule(field: str) -> Rule:
    """Return a transition rule that refuses a change of one field without a higher revision."""
    return Rule(
        f"self.revision > oldSelf.revision || ({_unchanged(field)})",
        f"{field} can change only with a higher revision, since the job restarts with it; raise "
        "revision, or delete the job and apply it again",
        f".{field}",
    )


def _unchanged(field: str) -> str:
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


REVISION_RULE = Rule(
    "self.revision >= oldSelf.revision",
    "revision cannot be lowered: it shows whether the running attempt has the current spec",
    ".revision",
)


DEADLINE_RULE = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.startedAt) || "
    "!has(oldSelf.spec.activeDeadlineSeconds) || (has(self.spec.activeDeadlineSeconds) && "
    "self.spec.activeDeadlineSeconds <= oldSelf.spec.activeDeadlineSeconds)",
    "activeDeadlineSeconds can only be lowered after the job was admitted, because the job may "
    "have been backfilled with it; delete the job and apply it again",
    ".spec.activeDeadlineSeconds",
)
"""A rule for the whole object: a job that was backfilled because it ends in time must do so."""

ENDED_RULE = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
    "!(oldSelf.status.phase in ['Succeeded', 'Failed']) || "
    "self.spec.revision == oldSelf.spec.revision",
    "a job that has ended cannot be revised: its results are final; `gpupack rerun` creates a new "
    "job of the same spec, or delete this one and apply it again",
    ".spec.revision",
)
"""A rule for the whole object: a higher revision of an ended job would have no effect."""

NAME_RULES = (
    Rule(
        f"size(self.metadata.name) <= {MAX_JOB_NAME}",
        f"the name must have at most {MAX_JOB_NAME} characters: pods are named after it",
    ),
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "the name must be lower-case letters, digits and '-', and begin with a letter: a Service "
        "is named after it",
    ),
)
"""Rules for the whole object; of metadata, CEL sees only the name."""
