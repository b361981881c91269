# SPDX-License-Identifier: Apache-2.0
"""GPUJob, the operator's side: its status."""

from typing import Annotated, Any, Final, Literal

import msgspec

from gpupack_crds import indices
from gpupack_crds.condition import BY_TYPE, Condition
from gpupack_crds.gpujob import MAX_GPUS, MAX_WORKERS
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


class Fault(Wire, frozen=True):
    """Where an attempt broke first."""

    worker: Annotated[int, described("The worker's index.", ge=0)]
    node: Annotated[str, described("The node that it was on.", min_length=1, max_length=253)]
    devices: Annotated[
        str,
        described("UUIDs of its GPUs: the first, and how many more.", max_length=512),
    ] = ""


class Attempt(Wire, frozen=True):
    """One try at running the job."""

    number: Annotated[int, described("1 for the first.", ge=1)]
    started_at: Annotated[Timestamp, described("When it was admitted.")]
    ended_at: (
        Annotated[
            Timestamp,
            described(
                "When the last of its workers' containers ended, by what its pods or its Job say; "
                "absent: no object says it."
            ),
        ]
        | None
    ) = None
    finished_at: (
        Annotated[
            Timestamp,
            described("When that was written here."),
        ]
        | None
    ) = None
    outcome: (
        Annotated[
            Outcome,
            described("How it ended. Infrastructure does not count against maxRestarts."),
        ]
        | None
    ) = None
    reason: Annotated[str, described("A word for programs.", max_length=128)] = ""
    message: Annotated[str, described("A sentence for people.", max_length=1024)] = ""
    fault: (
        Annotated[
            Fault,
            described("Where it broke first, if it did; the next attempts rather go elsewhere."),
        ]
        | None
    ) = None
    nodes: (
        Annotated[
            str,
            described("The nodes it was placed on: the first, and how many more.", max_length=512),
        ]
        | Annotated[tuple[str, ...], FORMER]
    ) = ""
    shares_pods: Annotated[
        bool,
        described(
            "True: its workers that are on one node share a pod. Absent: each worker has a pod."
        ),
    ] = False

    def __post_init__(self) -> None:
        """Convert the list of all nodes, which earlier versions wrote, into today's text."""
        if isinstance(self.nodes, tuple):
            first, more = "".join(self.nodes[:1]), len(self.nodes) - 1
            text = f"{first} +{more}" if more > 0 else first
            msgspec.structs.force_setattr(self, "nodes", text)


class WorkerResult(Wire, frozen=True):
    """What one worker measured, from its termination message."""

    worker: Annotated[int, described("The worker's index.", ge=0)]
    workload: Annotated[str, described("Which workload it was.", max_length=64)] = ""
    headline: Annotated[str, described("The result in a few words.", max_length=64)] = ""
    verified: Annotated[bool, described("Whether the result was checked, and right.")] | None = None
    simulated: Annotated[bool, described("True: measured without a GPU.")] | None = None
    metrics: Annotated[
        dict[str, Any],
        described(
            "Figures by name, units in the names.",
            schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ] = {}
    communication: (
        Annotated[Communication, described("How the processes of the gang reach one another.")]
        | None
    ) = None


class EndedWorkers(Wire, frozen=True):
    """Workers of the attempt that runs which have ended: their pods may be gone with their node."""

    succeeded: Annotated[
        str,
        described(
            "Indices of those that ended by themselves with exit code 0, such as 0-3,6.",
            max_length=indices.MAX_CHARACTERS,
        ),
    ] = ""
    ignored: Annotated[
        str,
        described(
            "Indices of those that failed with an exit code that failurePolicy ignores.",
            max_length=indices.MAX_CHARACTERS,
        ),
    ] = ""
    last_at: Annotated[Timestamp, described("When the last of them ended.")] | None = None
    results: Annotated[
        tuple[WorkerResult, ...], described("What they measured.", max_length=MAX_WORKERS)
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
]

PREEMPTION_TEXTS: Final[dict[PreemptionReason, str]] = {
    "InCohortReclamation": "which takes back what a quota promises",
    "InCohortFairSharing": "whose namespace has the smaller share",
    "Priority": "which has a higher priority",
    "ElasticScaleDown": "which takes the place of a worker beyond the least",
    "SpeculativeBackfill": "past which it was let in on an estimate of how long jobs take",
    "Maintenance": "for maintenance of node",
    "GpuFailed": "since a GPU failed on node",
    "Consolidation": "which has room once what is free comes together",
    "Revised": "which is itself, with a higher revision",
}
"""Reason of a preemption, as text that follows the name of the preemptor or of the node."""


class Victims(Wire, frozen=True):
    """Attempts that are stopped with the same right."""

    reason: Annotated[PreemptionReason, described("With which right.")]
    attempts: Annotated[
        tuple[
            Annotated[
                str,
                described(
                    "UID of a GPUJob and number of its attempt, as UID/NUMBER; of one of its "
                    "workers beyond the least UID/NUMBER+WORKER, from 1; or pod/UID.",
                    min_length=3,
                    max_length=64,
                ),
            ],
            ...,
        ],
        described("Whose; jobs of other namespaces have no name here.", max_length=MAX_GPUS),
    ] = ()


class Preemption(Wire, frozen=True):
    """Others are stopped or moved for this job: written before, and until it has their places.

    Or it is moved: its own last attempt is stopped for it.
    """

    since: Annotated[Timestamp, described("When it was decided.")]
    victims: Annotated[
        tuple[Victims, ...], described("Whom the job waits for.", min_length=1, max_length=5)
    ]
    placement: Annotated[
        tuple[NodePlacement, ...],
        described("Where it will run: kept for it.", min_length=1, max_length=MAX_WORKERS),
    ]
    lost_gpu_seconds: (
        Annotated[int, described("What the moves of a consolidation cost at the most.", ge=0)]
        | None
    ) = None
    gained_gpu_seconds: (
        Annotated[int, described("What the job has earlier by them, as was foreseen.", ge=0)] | None
    ) = None

    def names(self, job_uid: str, attempt: int) -> PreemptionReason | None:
        """Return the reason for which the attempt is stopped; None: it is not."""
        name = f"{job_uid}/{attempt}"
        return next((each.reason for each in self.victims if name in each.attempts), None)


NodesState = Literal["", "Deferred", "Creating", "Requested", "Provisioned", "Failed", "Withdrawn"]


class NodesRequest(Wire, frozen=True):
    """What the cluster's autoscaler was asked for this job."""

    lacks_gpus_since: (
        Annotated[
            Timestamp,
            described("Since when the job waits for nothing but room; absent: it does not."),
        ]
        | None
    ) = None
    number: Annotated[
        int,
        described("Of the last request, whose objects are called NAME-nodes-NUMBER.", ge=0),
    ] = 0
    state: Annotated[
        NodesState,
        described(
            "Held: by a bound of namespace or cluster. Asking, Asked, Provisioned: a request is "
            "open. Failed: it brought no place. Returned: it was given back."
        ),
    ] = ""
    since: Annotated[Timestamp, described("When it came into this state.")] | None = None
    message: Annotated[str, described("Why, in a sentence.", max_length=1024)] = ""
    failures: Annotated[int, described("Requests in a row that brought no place.", ge=0)] = 0
    generation: Annotated[
        int, described("The generation of the spec that this is about.", ge=0)
    ] = 0
    objects: Annotated[bool, described("Whether objects of the last request may be there.")] = False

    @property
    def is_open(self) -> bool:
        """Whether nodes may still arrive for this request."""
        return self.state in {"Creating", "Requested", "Provisioned"}


class Width(Wire, frozen=True):
    """Of an elastic gang: how many of its workers have places, and why not more or fewer."""

    workers: Annotated[int, described("Workers that have places.", ge=0)] = 0
    column: Annotated[str, described("The same for the column: 3 of 2-4.", max_length=32)] = ""
    resized_at: Annotated[Timestamp, described("When workers last came or went.")] | None = None
    reason: Annotated[str, described("Why they did, in a word.", max_length=128)] = ""
    message: Annotated[
        str, described("Why they did, and for whom, in a sentence.", max_length=1024)
    ] = ""


class PlannedPod(Wire, frozen=True):
    """A worker's pod as the API server's admission made it, when a plan was last asked for."""

    spec: Annotated[
        dict[str, Any],
        described(
            "The parts of its PodSpec that decide where it fits: requests, overhead, nodeSelector, "
            "required node affinity, tolerations.",
            schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ] = {}
    omitted: Annotated[
        bool, described("These parts are larger than 16 KiB and are not written here.")
    ] = False


class GpuJobStatus(Wire, frozen=True):
    """What became of the job."""

    observed_generation: Annotated[
        int, described("The generation of the spec that this status is about.", ge=0)
    ] = 0
    phase: Annotated[
        Phase, described("The conditions in one word, for people; programs read conditions.")
    ] = "Pending"
    reason: Annotated[
        str, described("Why the job is in this phase, in a word.", max_length=128)
    ] = ""
    message: Annotated[
        str, described("Why the job is in this phase, in a sentence.", max_length=4096)
    ] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "Admitted, Running, Succeeded, Failed, ResultsValid, Stalled; NodesRequested, "
            "FastCommunication.",
            max_length=16,
            schema=BY_TYPE,
        ),
    ] = ()
    attempt: Annotated[
        int, described("Number of the current attempt, 0 before the first.", ge=0)
    ] = 0
    revision: Annotated[
        int, described("Of the spec, by which the current attempt was begun.", ge=0)
    ] = 0
    held_since: (
        Annotated[
            Timestamp,
            described(
                "Since when it has its GPUs, where a higher revision has ended attempts since: it "
                "is protected from being stopped from then on, and not anew from each."
            ),
        ]
        | None
    ) = None
    priority: Annotated[int, described("The priority by which the job was last admitted.")] = 0
    placement: Annotated[
        tuple[NodePlacement, ...],
        described("Where the workers of the current attempt run, by node.", max_length=MAX_WORKERS),
    ] = ()
    planned_pod: (
        Annotated[
            PlannedPod,
            described(
                "The pod that a worker is planned as. Absent: not known; the template is planned."
            ),
        ]
        | None
    ) = None
    attempts: Annotated[
        tuple[Attempt, ...],
        described(
            "The attempts so far, newest last; the last 20 are kept.", max_length=ATTEMPTS_KEPT
        ),
    ] = ()
    ended_workers: (
        Annotated[EndedWorkers, described("Workers of the current attempt that have ended.")] | None
    ) = None
    width: Annotated[Width, described("Of an elastic gang: how wide it is.")] | None = None
    preemption: (
        Annotated[
            Preemption,
            described(
                "Who is stopped for this job, while it waits for that; itself, if it is moved."
            ),
        ]
        | None
    ) = None
    nodes_request: (
        Annotated[NodesRequest, described("What the cluster's autoscaler was asked for it.")] | None
    ) = None
    moves: Annotated[
        int,
        described("Attempts that were stopped to go on elsewhere; they count as no restart.", ge=0),
    ] = 0
    preemptions: Annotated[
        int,
        described(
            "Attempts that were stopped for other jobs or a maintenance; they count as no restart.",
            ge=0,
        ),
    ] = 0
    restarts: Annotated[int, described("Failed attempts that count against maxRestarts.", ge=0)] = 0
    started_at: Annotated[Timestamp, described("When the job was first admitted.")] | None = None
    resumed_at: (
        Annotated[Timestamp, described("When it was last resumed: it waits from then on.")] | None
    ) = None
    active_seconds: Annotated[
        int,
        described(
            "How long the attempts that have ended were active; it counts against "
            "activeDeadlineSeconds.",
            ge=0,
        ),
    ] = 0
    finished_at: Annotated[Timestamp, described("When the job ended.")] | None = None
    gpus: Annotated[
        str,
        described("GPUs of all workers, for the column; 2x40% are two shares.", max_length=32),
    ] = ""
    nodes: Annotated[
        str, described("Nodes of the current attempt, for the column.", max_length=1024)
    ] = ""
    headline: Annotated[
        str, described("The result in a few words, for the column.", max_length=64)
    ] = ""
    results: Annotated[
        tuple[WorkerResult, ...],
        described("What the workers measured.", max_length=MAX_WORKERS),
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
