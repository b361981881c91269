# SPDX-License-Identifier: Apache-2.0
"""GPUJob, the user's side: what to run, on how many GPUs, and what to do when it fails."""

from typing import Annotated, ClassVar, Final, Literal

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
MAX_REVISIONS = 1_000_000

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
        int, described("Percent of one GPU's compute, 1 to 99; ask gpus: 1 for all.", ge=1, le=99)
    ]
    memory: Annotated[Memory, described("Memory of that GPU, as a quantity such as 30Gi.")]
    isolation: Annotated[
        Isolation,
        described(
            "cooperative: the GPU's time is sliced between its shares, and nothing but good "
            "manners keeps one within its percent and memory. limited: CUDA MPS gives each process "
            "at most its percent of the multiprocessors (on H100 and H200 the most with which "
            "cuBLAS is right) and its memory, the shares compute at the same time, and a container "
            "that takes more memory than its share is ended; a program that means harm can leave "
            "MPS, and one that faults takes the others of the GPU along. "
            "strict: no share is; ask for MIG slices or whole GPUs."
        ),
    ] = "cooperative"
    share_with: Annotated[
        ShareWith,
        described(
            "namespace: no share of another namespace is on the same GPU. Shares of one isolation "
            "and one choice here are on a GPU together, and no others."
        ),
    ] = "anyone"

    rules: ClassVar = (
        # 10 instead of 10Gi would request 10 bytes of a GPU.
        Rule(
            f"!self.memory.matches('{MEMORY_PATTERN}') || "
            "(!quantity(self.memory).isLessThan(quantity('1Mi')) && "
            "quantity(self.memory).isLessThan(quantity('1Pi')))",
            "memory of a GPU is 1Mi or more, and no more than one has; set share.memory to "
            "something like 10Gi",
            ".memory",
        ),
        Rule(
            "self.isolation != 'strict'",
            "nothing isolates shares of a GPU strictly from each other: ask for gpus: 1 instead of "
            "a share, with mig: 1g.18gb or the like for a MIG slice, or set isolation to limited",
            ".isolation",
        ),
    )


class Spread(Wire, frozen=True):
    """Rules about the nodes that the workers of one job land on."""

    max_nodes: (
        Annotated[int, described("All workers on at most this many nodes.", ge=1, le=1024)] | None
    ) = None
    one_worker_per_node: Annotated[bool, described("No two workers on one node.")] = False
    one_clique: Annotated[
        bool,
        described(
            "The GPUs of all workers in one NVLink clique of one node; a GPU without NVLink is a "
            "clique of its own."
        ),
    ] = False


class Workload(Wire, frozen=True):
    """A built-in workload."""

    name: Annotated[WorkloadName, described("Which one.")]
    args: Annotated[
        tuple[Annotated[str, described("One argument.", max_length=256)], ...],
        described("Arguments of the workload, such as --size=1024.", max_length=32),
    ] = ()


class Distributed(Wire, frozen=True):
    """How the processes of a job find and talk to each other."""

    backend: Annotated[
        Backend,
        described(
            "torch.distributed backend; auto: nccl on whole GPUs, gloo on shares and on simulated "
            "GPUs. mpi: the command is what each rank runs, and worker 0 starts the ranks by the "
            "image's own mpirun, processesPerWorker in each worker."
        ),
    ] = "auto"
    processes_per_worker: (
        Annotated[
            int, described("Processes in each worker; one per GPU where absent.", ge=1, le=64)
        ]
        | None
    ) = None


class FailureRule(Wire, frozen=True):
    """What to do when the worker container ends with one of these exit codes."""

    exit_codes: Annotated[
        tuple[Annotated[int, described("One exit code.", ge=1, le=255)], ...],
        described("Exit codes that the rule is about.", min_length=1, max_length=32),
    ]
    action: Annotated[
        FailureAction,
        described(
            "Retry: restart, not counted against maxRestarts. Fail: the job fails at once. "
            "Ignore: the worker counts as succeeded."
        ),
    ]


_BY_MPIRUN = "has(self.distributed) && self.distributed.backend == 'mpi'"

_ASKS_BY_HAND = (
    "has(c.resources) && "
    "((has(c.resources.limits) && self.resourceName in c.resources.limits) || "
    "(has(c.resources.requests) && self.resourceName in c.resources.requests))"
)


class GpuJobSpec(Wire, frozen=True):
    """What to run, on how many GPUs, and what to do when it fails.

    Workers start together or not at all, minWorkers of them where that is said. Everything but
    suspend, movable, priority, maxRestarts, activeDeadlineSeconds and ttlSecondsAfterFinished is
    fixed once the job exists; with a higher revision workload, template and distributed may change.
    """

    workers: Annotated[
        int, described("Number of workers, started all together.", ge=1, le=MAX_WORKERS)
    ] = 1
    min_workers: (
        Annotated[
            int,
            described(
                "The job is elastic: so many workers start together or not at all, and the others, "
                "up to workers, run beside them for as long as nobody else can use their GPUs. For "
                "programs that go on when workers come and go, such as by torchrun's elastic "
                "rendezvous.",
                ge=1,
                le=MAX_WORKERS,
            ),
        ]
        | None
    ) = None
    gpus: (
        Annotated[
            int,
            described(
                "Whole GPUs for each worker; with mig: so many slices of that profile.",
                ge=1,
                le=64,
                schema=INT_OR_STRING
                | ruled(Rule("type(self) == int", GPUS_FORM, said=f"'{GPUS_FORM}: ' + self")),
            ),
        ]
        | None
    ) = None
    mig: (
        Annotated[
            str,
            described(
                "Profile of MIG slices, as nvidia-smi has it, such as 1g.18gb: gpus are slices of "
                "that profile then, which may be of different GPUs of a node. A process uses one. "
                "GPUs are taken as they are cut: gpupack cuts none.",
                max_length=32,
            ),
        ]
        | None
    ) = None
    share: Annotated[
        Share | None,
        described("A part of one GPU for each worker, instead of gpus."),
    ] = None
    pod_per_worker: (
        Annotated[
            bool,
            described(
                "Absent: workers of the job on one node share a pod, with a container each, so "
                "that they reach each other over NVLink and shared memory; each has a pod to "
                "itself where the template cannot be shared (a containerPort or probed port of "
                "the worker's container, resources of the pod) or the API server refuses the "
                "larger pod, or an image of your own starts by mpirun. False: they share a pod, "
                "and the job fails where that is not possible; mpirun has to be Open MPI's. True: "
                "each worker has a pod to itself. Workers of elastic jobs, of MIG slices, of "
                "shares and of GPUs of other device plugins always have."
            ),
        ]
        | None
    ) = None
    resource_name: Annotated[
        str,
        described(
            "The resource by which the kubelet hands out the GPUs. Another than gpupack.dev/gpu, "
            "such as nvidia.com/gpu, takes the job to nodes that another device plugin serves: "
            "gpupack packs these by node and says nothing about devices.",
            max_length=253,
        ),
    ] = GPU
    gpu_models: Annotated[
        tuple[
            Annotated[str, described("A model, such as H100.", min_length=1, max_length=64)], ...
        ],
        described(
            "GPU models to choose from, as people write them: V100, A100-80GB, h100 sxm, MI300X. "
            "Words of the product name are enough, case does not matter, and a size in GB is the "
            "data sheet's. Empty: any.",
            max_length=16,
        ),
    ] = ()
    min_memory: (
        Annotated[Memory, described("Least memory that each GPU must have, such as 40Gi.")] | None
    ) = None
    interconnect: Annotated[
        Interconnect,
        described("nvlink: the GPUs of one worker must reach each other over NVLink."),
    ] = "any"
    spread: Annotated[Spread | None, described("Rules about the nodes that workers land on.")] = (
        None
    )
    policy: (
        Annotated[
            PolicyName,
            described("Placement policy for this job; absent: the cluster's default."),
        ]
        | None
    ) = None
    priority: Annotated[
        int,
        described(
            "A job waits behind jobs of higher priority that wait for GPUs. A number lowers a job; "
            "above the cluster's bound, which is 0 by default, use priorityClassName.",
            ge=-1_000_000_000,
            le=1_000_000_000,
        ),
    ] = 0
    priority_class_name: (
        Annotated[
            str,
            described(
                "A PriorityClass with preemptionPolicy Never, instead of priority: its value is "
                "the job's priority, and the pods carry it, so that ResourceQuotas can say who may "
                "use it.",
                min_length=1,
                max_length=253,
                pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            ),
        ]
        | None
    ) = None
    workload: Annotated[
        Workload | None, described("A built-in workload to run in the worker container.")
    ] = None
    template: Annotated[
        Template | None, described("A partial pod template, merged over gpupack's own.")
    ] = None
    distributed: Annotated[
        Distributed | None, described("How the processes of the job talk to each other.")
    ] = None
    failure_policy: Annotated[
        tuple[FailureRule, ...],
        described("Rules by exit code; the first that matches decides.", max_length=20),
    ] = ()
    max_restarts: Annotated[
        int,
        described(
            "How often a failed job starts again, after a pause of 1 s that doubles with each "
            "failure in a row up to 60 s. Lost nodes and the like do not count.",
            ge=0,
            le=100,
        ),
    ] = 0
    active_deadline_seconds: (
        Annotated[
            int,
            described(
                "The job fails when its attempts have together been active for so long: from "
                "when each was admitted until it ended. Time in which it waits or is suspended "
                "does not count. Once the job was admitted it may only become less.",
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
                "The job is deleted this long after it ended; absent: kept.", ge=0, le=31_536_000
            ),
        ]
        | None
    ) = None
    revision: Annotated[
        int,
        described(
            "With a higher one workload, template and distributed may be others: what runs is "
            "stopped, and the job starts again with these on the same GPUs, which are kept for it "
            "where gpupack hands them out. It counts as no restart, and the deadline stays what it "
            "is. The second and each further one waits until the attempt is a minute old.",
            ge=0,
            le=MAX_REVISIONS,
        ),
    ] = 0
    suspend: Annotated[
        bool, described("True: the job is stopped and gives its GPUs back until false.")
    ] = False

    movable: Annotated[
        bool,
        described(
            "True: the job writes checkpoints and goes on from the last one when it starts again, "
            "so it may be stopped and started elsewhere, where there is a place for it: such as "
            "when its node is to be maintained."
        ),
    ] = False

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
        return not separate and self.least > 1 and whole_gpus and not self.extra

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
    def ignores_failures(self) -> bool:
        """Whether there are exit codes with which a worker counts as succeeded."""
        return any(rule.action == "Ignore" for rule in self.failure_policy)

    rules: ClassVar = (
        Rule(
            "has(self.gpus) != has(self.share)",
            "set exactly one of gpus (whole GPUs for each worker) and share (a part of one GPU)",
        ),
        Rule(
            f"!has(self.mig) || self.mig.matches('{MIG_PROFILE}')",
            "mig is the profile of MIG slices as nvidia-smi has it, such as 1g.18gb or 3g.71gb",
            ".mig",
        ),
        Rule(
            "!has(self.mig) || !has(self.share)",
            "a MIG slice is not shared; remove share and say by gpus how many slices each worker "
            "has, or remove mig",
            ".mig",
        ),
        Rule(
            f"!has(self.mig) || self.resourceName == '{GPU}'",
            "mig asks for slices that gpupack hands out; remove mig, or resourceName: where "
            "another device plugin serves slices, their resource alone says the profile",
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
            "minWorkers are among the workers; raise workers or lower minWorkers",
            ".minWorkers",
        ),
        Rule(
            f"!has(self.minWorkers) || self.workers - self.minWorkers <= {MAX_EXTRA_WORKERS}",
            f"at most {MAX_EXTRA_WORKERS} workers can come and go; raise minWorkers",
            ".minWorkers",
        ),
        Rule(
            "!has(self.minWorkers) || self.minWorkers == self.workers || !has(self.spread)",
            "workers that come and go are placed one by one; remove spread or minWorkers",
            ".minWorkers",
        ),
        Rule(
            "!has(self.minWorkers) || self.minWorkers == self.workers || !has(self.workload) || "
            f"self.workload.name == '{ELASTIC_WORKLOAD}'",
            "of the built-in workloads none but "
            f"{ELASTIC_WORKLOAD} goes on when workers come and go; remove minWorkers",
            ".minWorkers",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || !has(self.minWorkers) || self.minWorkers == self.workers",
            "mpirun's ranks do not come and go; remove minWorkers, or set another "
            "distributed.backend",
            ".minWorkers",
        ),
        Rule(
            f"!has(self.workload) || ({_BY_MPIRUN}) == (self.workload.name == '{MPI_WORKLOAD}')",
            f"of the built-in workloads {MPI_WORKLOAD} and no other is started by mpirun; set "
            "distributed.backend to mpi for it and to something else for others",
            ".workload",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || has(self.workload) || !has(self.template) || "
            "!has(self.template.spec) || !has(self.template.spec.containers) || "
            "self.template.spec.containers.all("
            "c, (c.name != 'worker' && size(self.template.spec.containers) > 1) || "
            "(has(c.command) && size(c.command) > 0))",
            "with distributed.backend mpi the container's command is what each rank runs, and the "
            "image's own cannot be known; set command",
            ".template",
        ),
        Rule(
            f"!({_BY_MPIRUN}) || !has(self.template) || "
            "!has(self.template.spec) || !has(self.template.spec.containers) || "
            "self.template.spec.containers.all("
            "c, (c.name != 'worker' && size(self.template.spec.containers) > 1) || "
            "!has(c.command) || size(c.command) == 0 || "
            "!c.command[0].matches('(^|/)mpi(run|exec)$'))",
            "with distributed.backend mpi gpupack runs mpirun; let command be the program that "
            "each rank runs, and say how many by distributed.processesPerWorker",
            ".template",
        ),
        Rule(
            "has(self.workload) || (has(self.template) && has(self.template.spec) && "
            "has(self.template.spec.containers) && self.template.spec.containers.exists("
            "c, (c.name == 'worker' || size(self.template.spec.containers) == 1) && "
            "has(c.image) && size(c.image) > 0))",
            "nothing to run: set workload.name, or a container with an image in "
            "template.spec.containers; of several, name one worker",
        ),
        Rule(
            "!has(self.spread) || !has(self.spread.maxNodes) || "
            "!has(self.spread.oneWorkerPerNode) || !self.spread.oneWorkerPerNode || "
            "self.spread.maxNodes >= self.workers",
            "oneWorkerPerNode needs maxNodes of at least workers; raise maxNodes or remove it",
            ".spread",
        ),
        Rule(
            "!has(self.spread) || !has(self.spread.oneClique) || !self.spread.oneClique || "
            "!has(self.spread.oneWorkerPerNode) || !self.spread.oneWorkerPerNode || "
            "self.workers == 1",
            "oneClique puts all workers on one node; remove oneClique or oneWorkerPerNode",
            ".spread",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || "
            "!has(self.spread) || !has(self.spread.oneClique) || !self.spread.oneClique",
            "gpupack does not choose the devices that another device plugin hands out; remove "
            "oneClique or resourceName",
            ".spread",
        ),
        Rule(
            "!has(self.gpuModels) || self.gpuModels.all(m, "
            "!m.matches('[:=]|^ *[0-9]+ *[xX*]|[.][a-z]+/'))",
            "gpuModels are models alone, such as A100-80GB; write how many as gpus: 2, and a "
            "resource such as nvidia.com/gpu as resourceName",
            ".gpuModels",
        ),
        Rule(
            "self.interconnect != 'nvlink' || "
            "(has(self.gpus) && (type(self.gpus) != int || self.gpus >= 2))",
            "interconnect: nvlink is between the GPUs of one worker; set gpus to 2 or more",
            ".interconnect",
        ),
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
            f"only GPUs that gpupack hands out can be shared; remove resourceName (or set {GPU}), "
            "or ask for whole GPUs with gpus",
            ".resourceName",
        ),
        Rule(
            f"self.resourceName == '{GPU}' || self.interconnect != 'nvlink'",
            "gpupack does not choose the devices that another device plugin hands out; remove "
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
            "ask for GPUs by spec.gpus, not for resourceName in the container's resources",
            ".template",
        ),
    )


FIXED_FIELDS = (
    "workers",
    "minWorkers",
    "gpus",
    "share",
    "mig",
    "podPerWorker",
    "resourceName",
    "gpuModels",
    "minMemory",
    "interconnect",
    "spread",
    "policy",
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
        f"{field} cannot change once the job exists; delete the job and apply it anew",
        f".{field}",
    )


def revised_rule(field: str) -> Rule:
    """Return a transition rule that refuses a change of one field without a higher revision."""
    return Rule(
        f"self.revision > oldSelf.revision || ({_unchanged(field)})",
        f"{field} can change with a higher revision alone, since the job starts again by it; raise "
        "revision, or delete the job and apply it anew",
        f".{field}",
    )


def _unchanged(field: str) -> str:
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


REVISION_RULE = Rule(
    "self.revision >= oldSelf.revision",
    "revision cannot become less: by it the job knows whether what runs is what it says now",
    ".revision",
)


DEADLINE_RULE = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.startedAt) || "
    "!has(oldSelf.spec.activeDeadlineSeconds) || (has(self.spec.activeDeadlineSeconds) && "
    "self.spec.activeDeadlineSeconds <= oldSelf.spec.activeDeadlineSeconds)",
    "activeDeadlineSeconds may only become less once the job was admitted: by it the job may have "
    "gone before others; delete the job and apply it anew",
    ".spec.activeDeadlineSeconds",
)
"""A rule for the whole object: a job that was backfilled because it ends in time must do so."""

ENDED_RULE = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
    "!(oldSelf.status.phase in ['Succeeded', 'Failed']) || "
    "self.spec.revision == oldSelf.spec.revision",
    "a job that has ended cannot be revised: its results are final; `gpupack rerun` makes a new "
    "job of the same spec, or delete this one and apply it anew",
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
