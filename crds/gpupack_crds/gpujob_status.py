# SPDX-License-Identifier: Apache-2.0
"""GPUJob, the operator's side: its status."""

from typing import Annotated, Any, Final, Literal

import msgspec

from gpupack_crds import indices
from gpupack_crds.condition import BY_TYPE, Condition
from gpupack_crds.gpujob import MAX_GPUS, MAX_ROLE_NAME, MAX_ROLES, MAX_WORKERS
from gpupack_crds.placement import NodePlacement
from gpupack_crds.results import Communication
from gpupack_crds.wire import FORMER, Timestamp, Wire, described

Phase = Literal["Pending", "Admitted", "Running", "Succeeded", "Failed", "Suspended"]
Outcome = Literal[
    "Succeeded",
    "Failed",
    "Infrastructure",
    "Preempted",
    "Moved",
    "Revised",
    "Suspended",
    "DeadlineExceeded",
]
ATTEMPTS_KEPT = 20

ENDED_PHASES: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed"})
"""Phases that are final."""


class RunLimit(Wire, frozen=True):
    """Maximum run time of the job by its cohort."""

    seconds: Annotated[int, described("Maximum seconds over all attempts.", ge=1, le=31_536_000)]
    cohort: Annotated[
        str, described("GPUCohort that sets it (maxRunSeconds).", min_length=1, max_length=253)
    ]


class Fault(Wire, frozen=True):
    """First failing worker of an attempt."""

    worker: Annotated[int, described("Index of the worker that failed first.", ge=0)]
    node: Annotated[str, described("Node of that worker.", min_length=1, max_length=253)]
    devices: Annotated[
        str,
        described("UUID of its first GPU, and the number of others.", max_length=512),
    ] = ""


class Attempt(Wire, frozen=True):
    """One run of the job's gang."""

    number: Annotated[int, described("Number of the attempt, from 1.", ge=1)]
    started_at: Annotated[Timestamp, described("Time of its admission.")]
    ended_at: (
        Annotated[
            Timestamp,
            described(
                "Time at which the last worker container ended, from its pods or Jobs. Absent: "
                "unknown."
            ),
        ]
        | None
    ) = None
    finished_at: (
        Annotated[
            Timestamp,
            described("Time at which the operator recorded the end."),
        ]
        | None
    ) = None
    outcome: (
        Annotated[
            Outcome,
            described("How the attempt ended. Only Failed counts against maxRestarts."),
        ]
        | None
    ) = None
    reason: Annotated[str, described("Reason of the outcome, in CamelCase.", max_length=128)] = ""
    message: Annotated[str, described("Details for users.", max_length=1024)] = ""
    fault: (
        Annotated[
            Fault,
            described("First failing worker and node. Later attempts avoid that node if possible."),
        ]
        | None
    ) = None
    nodes: (
        Annotated[
            str,
            described("First node of the attempt, and the number of others.", max_length=512),
        ]
        | Annotated[tuple[str, ...], FORMER]
    ) = ""
    shares_pods: Annotated[
        bool,
        described("True: workers on one node share a pod. Absent: each worker has its own pod."),
    ] = False

    def __post_init__(self) -> None:
        """Convert the list of all nodes, which earlier versions wrote, into today's text."""
        if isinstance(self.nodes, tuple):
            first, more = "".join(self.nodes[:1]), len(self.nodes) - 1
            text = f"{first} +{more}" if more > 0 else first
            msgspec.structs.force_setattr(self, "nodes", text)


class WorkerResult(Wire, frozen=True):
    """Result of one worker, from its termination message."""

    worker: Annotated[int, described("Index of the worker.", ge=0)]
    workload: Annotated[str, described("Name of the workload.", max_length=64)] = ""
    headline: Annotated[str, described("The result in a few words.", max_length=64)] = ""
    verified: (
        Annotated[bool, described("True: the workload checked its result, and it is correct.")]
        | None
    ) = None
    simulated: Annotated[bool, described("True: measured on a simulated GPU.")] | None = None
    metrics: Annotated[
        dict[str, Any],
        described(
            "Figures by name, units in the names.",
            schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ] = {}
    communication: (
        Annotated[Communication, described("How the processes of the gang communicate.")] | None
    ) = None


class EndedWorkers(Wire, frozen=True):
    """Ended workers of the running attempt; their pods may be deleted."""

    succeeded: Annotated[
        str,
        described(
            "Indices of workers that ended with exit code 0, such as 0-3,6.",
            max_length=indices.MAX_CHARACTERS,
        ),
    ] = ""
    ignored: Annotated[
        str,
        described(
            "Indices of workers that failed with an exit code that failurePolicy ignores.",
            max_length=indices.MAX_CHARACTERS,
        ),
    ] = ""
    last_at: Annotated[Timestamp, described("Time at which the last of them ended.")] | None = None
    results: Annotated[
        tuple[WorkerResult, ...], described("Results of these workers.", max_length=MAX_WORKERS)
    ] = ()


PreemptionReason = Literal[
    "InCohortReclamation",
    "InCohortFairSharing",
    "Priority",
    "SpeculativeBackfill",
    "ElasticScaleDown",
    "Maintenance",
    "Consolidation",
    "GpuFailed",
    "Revised",
    "TimeWindow",
]

PREEMPTION_TEXTS: Final[dict[PreemptionReason, str]] = {
    "InCohortReclamation": "which reclaims its nominal quota",
    "InCohortFairSharing": "whose namespace has the smaller fair share value",
    "Priority": "which has a higher priority",
    "ElasticScaleDown": "which needs the GPUs of an extra worker",
    "SpeculativeBackfill": "ahead of which it was backfilled on an estimated duration",
    "Maintenance": "for maintenance of node",
    "GpuFailed": "because a GPU failed on node",
    "Consolidation": "for which free GPUs are brought together",
    "Revised": "which restarts with a higher revision",
    "TimeWindow": "whose time window needs the GPUs",
}
"""Reason of a preemption, as text that follows the name of the preemptor or of the node."""


class Victims(Wire, frozen=True):
    """Preempted attempts and pods with one reason."""

    reason: Annotated[PreemptionReason, described("Preemption policy that applied.")]
    attempts: Annotated[
        tuple[
            Annotated[
                str,
                described(
                    "UID of a GPUJob and number of its attempt, as UID/NUMBER; of one of its "
                    "workers beyond the least UID/NUMBER+WORKER, from 1; pod/UID; or group/UID.",
                    min_length=3,
                    max_length=64,
                ),
            ],
            ...,
        ],
        described(
            "Preempted attempts as UID/NUMBER, UID/NUMBER+WORKER for one extra worker, or "
            "pod/UID for a standalone pod, or group/UID for a pod group, with the UID of its first "
            "member. Names of other namespaces are omitted.",
            max_length=MAX_GPUS,
        ),
    ] = ()


class Preemption(Wire, frozen=True):
    """Others are stopped or moved for this job: written before, and until it has their places.

    Or it is moved: its own last attempt is stopped for it.
    """

    since: Annotated[Timestamp, described("Time of the decision.")]
    victims: Annotated[
        tuple[Victims, ...],
        described("Attempts and pods that must end first.", min_length=1, max_length=5),
    ]
    placement: Annotated[
        tuple[NodePlacement, ...],
        described("Reserved placement of the job.", min_length=1, max_length=MAX_WORKERS),
    ]
    lost_gpu_seconds: (
        Annotated[
            int,
            described(
                "Upper estimate of the GPU seconds that the moves of a consolidation cost.", ge=0
            ),
        ]
        | None
    ) = None
    gained_gpu_seconds: (
        Annotated[
            int,
            described("Estimate of the GPU seconds that the job gains by its earlier start.", ge=0),
        ]
        | None
    ) = None

    def names(self, job_uid: str, attempt: int) -> PreemptionReason | None:
        """Return the reason for which the attempt is stopped; None: it is not."""
        name = f"{job_uid}/{attempt}"
        return next((each.reason for each in self.victims if name in each.attempts), None)


NodesState = Literal["", "Deferred", "Creating", "Requested", "Provisioned", "Failed", "Withdrawn"]


class NodesRequest(Wire, frozen=True):
    """Request for nodes to the cluster's autoscaler."""

    lacks_gpus_since: (
        Annotated[
            Timestamp,
            described(
                "Time since which only free GPUs are missing for the job. Absent: another reason "
                "blocks it, or it is admitted."
            ),
        ]
        | None
    ) = None
    number: Annotated[
        int,
        described("Number of the last request. Its objects have the name NAME-nodes-NUMBER.", ge=0),
    ] = 0
    state: Annotated[
        NodesState,
        described(
            "Deferred: a limit of the namespace or the cluster is reached. Creating, Requested, "
            "Provisioned: a request is open. Failed: it provided no nodes that the job can use. "
            "Withdrawn: it is no longer needed."
        ),
    ] = ""
    since: Annotated[Timestamp, described("Time at which it entered this state.")] | None = None
    message: Annotated[str, described("Details for users.", max_length=1024)] = ""
    failures: Annotated[int, described("Number of failed requests in a row.", ge=0)] = 0
    generation: Annotated[
        int, described("Generation of the spec to which the request belongs.", ge=0)
    ] = 0
    objects: Annotated[bool, described("True: objects of the last request may exist.")] = False

    @property
    def is_open(self) -> bool:
        """Whether nodes may still arrive for this request."""
        return self.state in {"Creating", "Requested", "Provisioned"}


class Width(Wire, frozen=True):
    """Number of workers of an elastic gang, and why it last changed."""

    workers: Annotated[int, described("Number of workers with a placement.", ge=0)] = 0
    column: Annotated[
        str, described("Text for `kubectl get`, such as 3 of 2-4.", max_length=32)
    ] = ""
    resized_at: Annotated[Timestamp, described("Time of the last change.")] | None = None
    reason: Annotated[
        str, described("Reason of the last change, in CamelCase.", max_length=128)
    ] = ""
    message: Annotated[str, described("Details of the last change.", max_length=1024)] = ""


class PlannedPod(Wire, frozen=True):
    """A worker's pod after the API server's admission, at the last plan."""

    spec: Annotated[
        dict[str, Any],
        described(
            "Parts of its PodSpec that decide where it fits and how it ends: requests, overhead, "
            "nodeSelector, required node affinity, tolerations, grace period.",
            schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ] = {}
    omitted: Annotated[
        bool, described("True: these parts, of all roles, exceed 16 KiB and are not stored here.")
    ] = False


class RoleStatus(Wire, frozen=True):
    """State of a role's workers."""

    name: Annotated[str, described("Name of the role.", min_length=1, max_length=MAX_ROLE_NAME)]
    workers: Annotated[int, described("Number of workers of the role.", ge=0)] = 0
    first: Annotated[int, described("Index of its first worker in the job.", ge=0)] = 0
    running: Annotated[
        int,
        described(
            "Number of workers that have started and not ended; of more than ten workers in steps "
            "of a tenth, until all have started.",
            ge=0,
        ),
    ] = 0
    succeeded: Annotated[
        int,
        described(
            "Number of workers of the current attempt that have ended and count as succeeded.", ge=0
        ),
    ] = 0
    gpus: Annotated[
        str, described("GPUs of the role's workers, such as 8 or 2x40%.", max_length=32)
    ] = ""
    nodes: Annotated[
        str, described("Nodes of the role's workers in the current attempt.", max_length=1024)
    ] = ""
    planned_pod: (
        Annotated[
            PlannedPod,
            described(
                "A pod of the role after admission webhooks, for placement. Absent: unknown; the "
                "role's template is used."
            ),
        ]
        | None
    ) = None


class GpuJobStatus(Wire, frozen=True):
    """State of the job. The operator writes it."""

    observed_generation: Annotated[
        int, described("Generation of the spec to which this status belongs.", ge=0)
    ] = 0
    phase: Annotated[
        Phase, described("Summary of the conditions for users. Programs read the conditions.")
    ] = "Pending"
    reason: Annotated[str, described("Reason of the phase, in CamelCase.", max_length=128)] = ""
    message: Annotated[
        str, described("Details of the reason, and what helps.", max_length=4096)
    ] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "Types: Admitted, Running, Succeeded, Failed, ResultsValid, Stalled; and, where they "
            "apply, NodesRequested and FastCommunication.",
            max_length=16,
            schema=BY_TYPE,
        ),
    ] = ()
    attempt: Annotated[
        int, described("Number of the current attempt; 0 before the first one.", ge=0)
    ] = 0
    revision: Annotated[
        int, described("Revision of the spec with which the current attempt was started.", ge=0)
    ] = 0
    held_since: (
        Annotated[
            Timestamp,
            described(
                "Time since which the job has its GPUs, if it kept them across revisions. The "
                "minimum run time counts from then."
            ),
        ]
        | None
    ) = None
    priority: Annotated[int, described("Priority at the last admission.")] = 0
    placement: Annotated[
        tuple[NodePlacement, ...],
        described(
            "Placement of the workers of the current attempt, by node.", max_length=MAX_WORKERS
        ),
    ] = ()
    planned_pod: (
        Annotated[
            PlannedPod,
            described(
                "A worker's pod after admission webhooks, for placement. Absent: unknown; the "
                "template is used."
            ),
        ]
        | None
    ) = None
    workers: (
        Annotated[int, described("Number of workers of the job, of all roles.", ge=0)] | None
    ) = None
    roles: Annotated[
        tuple[RoleStatus, ...],
        described("State of each role, in the order of spec.roles.", max_length=MAX_ROLES),
    ] = ()
    attempts: Annotated[
        tuple[Attempt, ...],
        described("The last 20 attempts, newest last.", max_length=ATTEMPTS_KEPT),
    ] = ()
    ended_workers: (
        Annotated[EndedWorkers, described("Workers of the current attempt that have ended.")] | None
    ) = None
    width: Annotated[Width, described("Number of workers of an elastic gang.")] | None = None
    preemption: (
        Annotated[
            Preemption,
            described("Preemption in favour of this pending job; for a move, of the job itself."),
        ]
        | None
    ) = None
    nodes_request: (
        Annotated[NodesRequest, described("Request for nodes to the cluster's autoscaler.")] | None
    ) = None
    moves: Annotated[
        int,
        described(
            "Number of attempts that were moved to other GPUs. They do not count as restarts.", ge=0
        ),
    ] = 0
    preemptions: Annotated[
        int,
        described(
            "Number of attempts that were preempted for other jobs or a maintenance. They do not "
            "count as restarts.",
            ge=0,
        ),
    ] = 0
    restarts: Annotated[
        int, described("Number of failed attempts that count against maxRestarts.", ge=0)
    ] = 0
    started_at: Annotated[Timestamp, described("Time of the first admission.")] | None = None
    resumed_at: (
        Annotated[
            Timestamp, described("Time of the last resumption. The waiting time counts from then.")
        ]
        | None
    ) = None
    active_seconds: Annotated[
        int,
        described(
            "Total seconds of the ended attempts. They count against the deadline.",
            ge=0,
        ),
    ] = 0
    run_limit: (
        Annotated[
            RunLimit,
            described(
                "Deadline of the job by its cohort, if it is earlier than activeDeadlineSeconds. "
                "It follows changes of the cohort while the job is pending or runs."
            ),
        ]
        | None
    ) = None
    finished_at: Annotated[Timestamp, described("Time at which the job ended.")] | None = None
    gpus: Annotated[
        str,
        described("GPUs of all workers, for `kubectl get`; 2x40% means two shares.", max_length=32),
    ] = ""
    nodes: Annotated[
        str, described("Nodes of the current attempt, for `kubectl get`.", max_length=1024)
    ] = ""
    headline: Annotated[
        str, described("Summary of the result, for `kubectl get`.", max_length=64)
    ] = ""
    results: Annotated[
        tuple[WorkerResult, ...],
        described("Results of the workers.", max_length=MAX_WORKERS),
    ] = ()

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return self.phase in ENDED_PHASES

    @property
    def holds_placement(self) -> bool:
        """Whether the places of `placement` belong to this job, bound or not."""
        return self.phase in {"Admitted", "Running"} and bool(self.placement)


def gpu_count(column: str) -> int | str:
    """Parse column `gpus`: a number of whole GPUs, or shares and MIG slices such as 2x40%."""
    return int(column) if column.isdecimal() else column
