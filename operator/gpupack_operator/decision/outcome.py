# SPDX-License-Identifier: Apache-2.0
"""Rules that tell whether the attempt has ended, and how; the first one that is due decides.

Every rule states from which time its verdict holds. So a timeout is an ordinary finding in the
future, and the earliest finding is the next time to look.
"""

import datetime as dt
from collections.abc import Callable
from functools import partial

from gpupack_crds.gpujob_status import Outcome
from gpupack_kubeclient.objects import ContainerWaiting, Job
from gpupack_operator.decision import causes, image_pulls, times
from gpupack_operator.decision.image_help import image_help
from gpupack_operator.decision.reasons import JobReason, reason_of_deadline
from gpupack_operator.decision.view import AttemptView, Finding, Verdict, condition_of
from gpupack_operator.decision.workers import Worker, by_index

NEWS_SECONDS = 3.0
"""A Job's end can be known before the ends of its pods, because there are two watches."""

MAX_NAMED_WORKERS = 8
"""Largest number of workers that a message names."""

CONTROLLER_SECONDS = 120.0
"""Time in which the Job controller must begin with a Job: other jobs could use the GPUs."""

JOB_ENDS = ("Complete", "SuccessCriteriaMet", "Failed", "FailureTarget")
"""Conditions of a Job that creates no more pods: it has ended, or its last pods are ending."""

START_TROUBLE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
CONFIG_TROUBLE = "CreateContainerConfigError"
NODE_FAULT_TEXTS = (
    "gpupack: ",
    "PreStartContainer",
    "endpoint not found in cache",
    "no devices found allocated",
    "rpc error",
    "timed out waiting",
    "services have not yet been read",
)
"""Texts of trouble for which the node is responsible. The kubelet reports two kinds of trouble as
CreateContainerConfigError: an object that the template names does not exist (`secret "x" not
found`), or the node could not do its part. The agent's refusals come as `device plugin
PreStartContainer rpc failed with err: rpc error: … desc = gpupack: …`.
"""


def judge(view: AttemptView) -> tuple[Verdict | None, dt.datetime | None]:
    """Return the verdict, or None and the time to look again."""
    findings = [finding for rule in RULES if (finding := rule(view))]
    for finding in findings:
        if finding.due <= view.now:
            return finding.verdict, None
    return None, times.earliest(*(finding.due for finding in findings))


def completed(view: AttemptView) -> Finding | None:
    """Find that all workers have succeeded; their Job shows this about a second later.

    The Job alone is no proof: its controller also counts a worker as completed if it was requested
    to end and exits with 0.
    """
    if not _all_succeeded(view):
        return None
    count = view.count
    message = "the worker completed" if count == 1 else f"all {count} workers completed"
    return Finding(view.now, _verdict("Succeeded", JobReason.COMPLETED, message))


def deadline_exceeded(view: AttemptView) -> Finding | None:
    """Apply the deadline of the GPUJob or its cohort.

    An end before it is judged by how it ended, however late.
    """
    if view.deadline is None or (view.ended_at is not None and view.ended_at < view.deadline):
        return None
    limit = times.describe_limit(view.spec, view.run_limit)
    message = f"the job was active for {limit} and had not ended"
    reason = reason_of_deadline(view.run_limit)
    return Finding(view.deadline, _verdict("DeadlineExceeded", reason, message))


def failures_ignored(view: AttemptView) -> Finding | None:
    """Find that every worker ended, well or with an exit code that the failure policy ignores."""
    workers = by_index(view.workers)
    left = [each for index, each in workers.items() if index not in view.ended.indices]
    if view.missing or not all(worker.has_ended for worker in left):
        return None
    failed = [worker for worker in left if not worker.succeeded]
    found = [causes.cause_of(worker, view) for worker in failed]
    ignored = all(cause is not None and causes.is_ignored(cause, view) for cause in found)
    indices = sorted({worker.index for worker in failed} | view.ended.ignored)
    if not indices or not ignored:
        return None
    which = ", ".join(map(str, indices))
    message = f"all workers ended; failurePolicy ignores the exit codes of workers {which}"
    return Finding(view.now, _verdict("Succeeded", JobReason.FAILURES_IGNORED, message))


def job_gone(view: AttemptView) -> Finding | None:
    """Find that a Job was deleted.

    No worker starts before each worker has a Job.
    """
    began = view.running or any(worker.started for worker in view.workers)
    missing = bool(view.missing_jobs) and began
    deleted = any(job.metadata.deletion_timestamp is not None for job in view.jobs)
    if not missing and not deleted:
        return None
    message = f"the Job of attempt {view.number} was deleted"
    return Finding(view.now, _verdict("Infrastructure", JobReason.JOB_DELETED, message))


def job_failed(view: AttemptView) -> Finding | None:
    """Find that a Job failed and no pod is left that shows the cause."""
    failed = ((job, found) for job in view.jobs if (found := condition_of(job, "Failed")))
    counts = (
        found
        for job, found in failed
        if not (view.has_job_per_pod and _failure_is_ignored(job, view))
    )
    first = next(counts, None)
    if first is None:
        return None
    said = first.message
    message = f"a pod is gone, and with it the reason why it ended; its Job says: {said}"
    due = times.after(first.last_transition_time or view.now, NEWS_SECONDS)
    return Finding(due, _verdict("Infrastructure", JobReason.POD_LOST, message))


def end_not_observed(view: AttemptView) -> Finding | None:
    """Find that a Job completed, but a worker's pod was deleted before its end was observed.

    Only a pod whose deletion was requested disappears, and the pod showed whether that was before
    its end.
    """
    completed = [(job, found) for job in view.jobs if (found := condition_of(job, "Complete"))]
    lacking = [(found, of) for job, found in completed if (of := _missing_of(job, view))]
    if not lacking:
        return None
    complete, missing = lacking[0][0], [index for _, of in lacking for index in of]
    which = ", ".join(map(str, missing[:MAX_NAMED_WORKERS]))
    which += (
        f" and {len(missing) - MAX_NAMED_WORKERS} more" if len(missing) > MAX_NAMED_WORKERS else ""
    )
    message = (
        f"the Job completed, but the pods of workers {which} were deleted, and with them whether "
        "the workers had ended by themselves before"
    )
    due = times.after(complete.last_transition_time or view.now, NEWS_SECONDS)
    return Finding(due, _verdict("Infrastructure", JobReason.POD_LOST, message))


def not_created(view: AttemptView) -> Finding | None:
    """Find that the Job controller may not create pods, because of a quota or admission.

    It writes a Job's first status, and startTime with it, after it has tried to create the pods. So
    a slow admission webhook does not look like this.
    """
    began = view.began_at
    if began is None or view.all_created:
        return None
    if view.running or any(condition_of(job, kind) for job in view.jobs for kind in JOB_ENDS):
        return None
    creations = [worker.pod.metadata.creation_timestamp or began for worker in view.workers]
    seconds = view.limits.create_seconds_of(view.count)
    due = times.after(max([began, *creations]), seconds)
    message = _why_not_created(view, view.count - len(view.missing))
    return Finding(due, _verdict("Infrastructure", JobReason.CREATION_FORBIDDEN, message))


def not_bound(view: AttemptView) -> Finding | None:
    """Find that not all workers have a node; if they ran already, they lost their pods.

    Time counts from when the Job controller began with the Job: its writes are limited
    (--kube-api-qps), and after several hundred Jobs at once it is a minute late. To give up what it
    has not begun would only add to its work.

    A worker that kube-scheduler refuses names its node, and the next attempt avoids that node. No
    plan knows the obstacle there (a host port, a volume, another pod's affinity).
    """
    bound = view.bound
    if bound >= view.count:
        return None
    seconds = view.limits.bind_seconds_of(view.count)
    due = times.after(max(view.started_at, _begun_at(view)), seconds)
    if view.running:
        gone = view.count - bound
        message = f"{gone} of {view.count} pods are gone, and with them why they ended"
        return Finding(due, _verdict("Infrastructure", JobReason.POD_LOST, message))
    unbound = [worker for worker in by_index(view.workers).values() if not worker.bound]
    refused = next((worker for worker in unbound if worker.refused), None)
    waits = refused or next(iter(unbound), None)
    why = _why_unbound(waits, view) if waits else "see the events of the Job"
    within = f"within {seconds:.0f} s"
    message = f"{bound} of {view.count} workers were bound {within}: {why}"
    message += view.foreign_pods_message + view.excess_message
    index = refused.index if refused else None
    return Finding(due, _verdict("Infrastructure", JobReason.BIND_TIMEOUT, message, worker=index))


def not_starting(view: AttemptView) -> Finding | None:
    """Find a bound worker whose containers cannot start."""
    found = [finding for worker in view.workers if (finding := _trouble(worker, view))]
    return min(found, key=lambda finding: finding.due, default=None)


def not_begun(view: AttemptView) -> Finding | None:
    """Find a bound worker of which its kubelet reports nothing: the kubelet or the agent hangs.

    This is not part of `not_starting`: each pod is like this for a moment, which is not worth a
    message.
    """
    silent = [worker for worker in view.workers if worker.bound_at and not worker.seen_by_kubelet]
    if not silent:
        return None
    first = min(silent, key=lambda worker: worker.bound_at or view.now)
    seconds = view.limits.start_seconds
    node = first.pod.spec.node_name
    message = f"worker {first.index}: the kubelet of node {node} did nothing for {seconds:.0f} s"
    due = times.after(first.bound_at or view.now, seconds)
    verdict = _verdict("Infrastructure", JobReason.CANNOT_START, message, worker=first.index)
    return Finding(due, verdict)


def _begun_at(view: AttemptView) -> dt.datetime:
    """Return when the Job controller began with the Job; before that, the latest time for it."""
    if view.began_at is None and view.jobs:
        return times.after(view.started_at, CONTROLLER_SECONDS)
    return view.began_at or view.started_at


Rule = Callable[[AttemptView], Finding | None]

RULES: tuple[Rule, ...] = (
    completed,
    deadline_exceeded,
    causes.first_cause,
    failures_ignored,
    job_gone,
    job_failed,
    end_not_observed,
    not_created,
    not_bound,
    not_starting,
    not_begun,
)


def _verdict(
    outcome: Outcome,
    reason: JobReason,
    message: str,
    *,
    permanent: bool = False,
    worker: int | None = None,
) -> Verdict:
    return Verdict(
        outcome=outcome, reason=reason, message=message, permanent=permanent, worker=worker
    )


def _all_succeeded(view: AttemptView) -> bool:
    succeeded = {index for index, each in by_index(view.workers).items() if each.succeeded}
    return succeeded.union(view.ended.succeeded).issuperset(view.indices)


def _why_not_created(view: AttemptView, created: int) -> str:
    """Explain the missing pods; the refusal is in an event, which the operator may not read."""
    lacks = (job.metadata.name for job in view.jobs if _missing_of(job, view))
    name, of = next(lacks, ""), "workers have pods" if view.has_job_per_pod else "pods exist"
    seconds = view.limits.create_seconds_of(view.count)
    return (
        f"{created} of {view.count} {of} and for {seconds:.0f} s "
        "no other was created: a quota or admission forbids them. To see the refusal: "
        f"kubectl get events --field-selector reason=FailedCreate,involvedObject.name={name}"
        f"{view.foreign_pods_message}"
    )


def _missing_of(job: Job, view: AttemptView) -> list[int]:
    """Return the indices of a Job's workers that have no pod."""
    return sorted(set(view.workers_of(job)).intersection(view.missing))


def _failure_is_ignored(job: Job, view: AttemptView) -> bool:
    """Tell whether a Job failed with a worker whose failure the failure policy ignores."""
    indices = set(view.workers_of(job))
    if indices.intersection(view.missing):
        return False
    found = (causes.cause_of(each, view) for each in view.workers if each.index in indices)
    ignored = any(cause is not None and causes.is_ignored(cause, view) for cause in found)
    return ignored or bool(indices & view.ended.ignored)


def _why_unbound(worker: Worker, view: AttemptView) -> str:
    scheduled = worker.condition("PodScheduled")
    said = scheduled.message if scheduled and scheduled.message else "no scheduler has answered"
    node = view.planned.get(worker.index)
    place = f", planned on node {node}" if node else ""
    return f"worker {worker.index}{place} (pod {worker.pod.metadata.name}): {said}"


def _trouble(worker: Worker, view: AttemptView) -> Finding | None:
    known = (each for each in worker.waiting if each.reason in image_pulls.TROUBLE | START_TROUBLE)
    waiting, startable_at = next(known, None), worker.startable_at
    if not waiting or not startable_at or worker.started:
        return None
    message = f"worker {worker.index} on node {worker.pod.spec.node_name}: {waiting.reason}"
    message += f": {waiting.message}" if waiting.message else ""
    if waiting.reason in image_pulls.TROUBLE:
        return _image_trouble(worker, waiting, startable_at, message, view)
    broken = partial(_verdict, message=message, worker=worker.index)
    due = times.after(startable_at, view.limits.start_seconds)
    if _is_template_fault(waiting):
        return Finding(due, broken("Failed", JobReason.CANNOT_START, permanent=True))
    return Finding(due, broken("Infrastructure", JobReason.CANNOT_START))


def _image_trouble(
    worker: Worker, waiting: ContainerWaiting, since: dt.datetime, message: str, view: AttemptView
) -> Finding:
    """Return the finding.

    The next attempt may find the image; the last attempt fails the job.
    """
    namespace = worker.pod.metadata.namespace
    message += image_help(waiting.message, namespace=namespace, secrets=view.pull_secrets)
    broken = partial(_verdict, reason=JobReason.IMAGE_PULL_FAILED, worker=worker.index)
    if image_pulls.is_permanent(waiting.reason, view.earlier):
        return Finding(since, broken("Failed", message=message, permanent=True))
    due = times.after(since, image_pulls.wait_seconds(view.earlier, view.limits.image_seconds))
    if image_pulls.is_last_attempt(view.earlier):
        message += f"; {image_pulls.MAX_ATTEMPTS} attempts in a row could not pull it"
        return Finding(due, broken("Failed", message=message, permanent=True))
    return Finding(due, broken("Infrastructure", message=message))


def _is_template_fault(waiting: ContainerWaiting) -> bool:
    """Tell whether the template is the cause.

    Without a text this is not known, and another attempt may show it.
    """
    said = waiting.message
    known = waiting.reason == CONFIG_TROUBLE and said != ""
    return known and not any(mark in said for mark in NODE_FAULT_TEXTS)
