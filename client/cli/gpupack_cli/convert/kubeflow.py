# SPDX-License-Identifier: Apache-2.0
"""What PyTorchJob and MPIJob have in common: run policy and replicas."""

from typing import Any, Final

from gpupack_cli.convert.foreign import Foreign
from gpupack_cli.convert.job import JobFields, exit_code_rules, restarts
from gpupack_cli.convert.pod import PodTemplate
from gpupack_cli.convert.queue_labels import NAMESPACE_QUOTA
from gpupack_cli.convert.report import Report
from gpupack_kubeclient.objects import Json

PERMANENT_CODES: Final = range(1, 128)
"""Exit codes after which restartPolicy ExitCode does not restart."""


class SchedulingPolicy(Foreign, frozen=True):
    """Settings for a gang scheduler."""

    min_available: int | None = None
    queue: str = ""
    min_resources: dict[str, Any] = {}
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


class RunPolicy(Foreign, frozen=True):
    """Life of a job."""

    clean_pod_policy: str = ""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool = False
    managed_by: str = ""


class ReplicaSpec(Foreign, frozen=True):
    """Pods of one role."""

    replicas: int = 1
    restart_policy: str = ""
    template: PodTemplate = PodTemplate()


def run_policy(
    policy: RunPolicy,
    *,
    workers: int,
    min_workers: int | None,
    restart_policy: str,
    report: Report,
    path: str = "spec.runPolicy",
) -> JobFields:
    """Return the fields that a run policy and a restart policy set."""
    scheduling = policy.scheduling_policy or SchedulingPolicy()
    _scheduling(scheduling, workers, report, path=f"{path}.schedulingPolicy")
    if policy.clean_pod_policy in {"All", "Running"}:
        report.note(
            f"{path}.cleanPodPolicy",
            policy.clean_pod_policy,
            "pods of the last attempt stay with their logs and hold no GPUs",
        )
    if policy.managed_by:
        report.note(f"{path}.managedBy", policy.managed_by, "gpupack manages GPUJobs")
    rules: tuple[Json, ...] = ()
    if restart_policy == "ExitCode":
        rules = exit_code_rules(list(PERMANENT_CODES), "Fail")
    return JobFields(
        workers=workers,
        min_workers=min_workers,
        max_restarts=restarts(
            restart_policy or "OnFailure", policy.backoff_limit, report, path=f"{path}.backoffLimit"
        ),
        failure_policy=rules,
        priority_class=scheduling.priority_class,
        deadline_seconds=policy.active_deadline_seconds,
        ttl_seconds=policy.ttl_seconds_after_finished,
        suspend=policy.suspend,
    )


def _scheduling(policy: SchedulingPolicy, workers: int, report: Report, *, path: str) -> None:
    if policy.queue:
        report.note(f"{path}.queue", policy.queue, NAMESPACE_QUOTA)
    if policy.min_available is not None and policy.min_available < workers:
        report.dropped(
            f"{path}.minAvailable",
            policy.min_available,
            f"all {workers} workers start together; minWorkers makes a job elastic, if its program "
            "supports a changing number of workers",
        )
    if policy.min_resources:
        report.note(f"{path}.minResources", None, "the gang requests what its workers request")
    if policy.schedule_timeout_seconds is not None:
        report.note(
            f"{path}.scheduleTimeoutSeconds",
            policy.schedule_timeout_seconds,
            "a GPUJob waits and holds nothing until all workers fit",
        )
