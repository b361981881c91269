# SPDX-License-Identifier: Apache-2.0
"""Reasons that the operator itself writes.

Three kinds come from other components and are passed on unchanged: why a plan was refused
(`TooFewFreeGpus` …, from the extender), why a kubelet rejected a pod (`UnexpectedAdmissionError`
…), and why a pod was disrupted (`DeletionByTaintManager` …, from its DisruptionTarget condition).
"""

import enum

from gpupack_crds.gpujob_status import RunLimit


class JobReason(enum.StrEnum):
    """Machine-readable reason."""

    # Waiting
    ADMISSION_PENDING = "AdmissionPending"
    """The extender's reason: the job fits, and the next scheduling cycle admits it."""
    QUEUED = "Queued"
    UNDETERMINED = "Undetermined"
    SCHEDULER_UNAVAILABLE = "SchedulerUnavailable"
    PLAN_DENIED = "PlanDenied"
    DRY_RUN_LIMIT_EXCEEDED = "DryRunLimitExceeded"
    """Other jobs of the namespace have used up its dry runs for now."""
    PRIORITY_CLASS_MISSING = "PriorityClassMissing"
    PRIORITY_CLASS_PREEMPTS = "PriorityClassPreempts"
    RESTARTING = "Restarting"
    WORKERS_TERMINATING = "WorkersTerminating"
    SUSPENDED = "Suspended"

    # Nodes are requested
    PROVISIONING_REQUESTED = "ProvisioningRequested"
    PROVISIONED = "Provisioned"
    PROVISIONING_FAILED = "ProvisioningFailed"
    PROVISIONING_STOPPED = "ProvisioningStopped"
    PROVISIONING_DEFERRED = "ProvisioningDeferred"
    PROVISIONING_WITHDRAWN = "ProvisioningWithdrawn"

    # The operator itself
    API_ERROR = "ApiError"
    INTERNAL_ERROR = "InternalError"
    RECOVERED = "Recovered"

    # The attempt continues
    ADMITTED = "Admitted"
    STARTING = "Starting"
    ALL_WORKERS_RUNNING = "AllWorkersRunning"
    SCALED_UP = "ScaledUp"
    """More workers of an elastic gang have places."""
    REVISED = "Revised"
    """The job restarts for a higher revision of its spec."""
    ENDED = "Ended"

    # The job succeeded
    COMPLETED = "Completed"
    FAILURES_IGNORED = "FailuresIgnored"
    RESULTS_READ = "ResultsRead"
    NO_RESULTS = "NoResults"
    RESULT_UNREADABLE = "ResultUnreadable"
    NVLINK_USED = "NVLinkUsed"
    NVLINK_NOT_USED = "NVLinkNotUsed"

    # The job's own failure
    WORKER_FAILED = "WorkerFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    INVALID_TEMPLATE = "InvalidTemplate"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    MAX_RUN_TIME_EXCEEDED = "MaxRunTimeExceeded"
    """The deadline that the job's cohort sets."""

    # Infrastructure, or something that an administrator or user must repair first
    IMAGE_PULL_FAILED = "ImagePullFailed"
    POD_REJECTED = "PodRejected"
    POD_DELETED = "PodDeleted"
    POD_LOST = "PodLost"
    JOB_DELETED = "JobDeleted"
    GPU_FAILED = "GpuFailed"
    BIND_TIMEOUT = "BindTimeout"
    CANNOT_START = "CannotStart"
    NAME_CONFLICT = "NameConflict"
    CREATION_FORBIDDEN = "CreationForbidden"
    SHARED_POD_REJECTED = "SharedPodRejected"
    """The API server refused the Job of a pod of several workers; next, each worker gets a pod."""


def reason_of_deadline(limit: RunLimit | None) -> JobReason:
    """Return the reason of an exceeded deadline; `limit`: that of the cohort, if it counts."""
    return JobReason.DEADLINE_EXCEEDED if limit is None else JobReason.MAX_RUN_TIME_EXCEEDED
