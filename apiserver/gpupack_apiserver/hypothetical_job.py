# SPDX-License-Identifier: Apache-2.0
"""The GPUJob of a what-if query, checked by the API server in a dry run.

The dry run uses the caller's own token, or the caller makes it (`parse_checked_job`): a client
certificate cannot be passed on.
"""

import dataclasses
from collections.abc import Callable, Collection

import msgspec

from gpupack_apiserver.errors import CallInvalid
from gpupack_crds.dry_run import PREFIX, JudgedJob
from gpupack_crds.gpujob import MAX_GPUS, MAX_WORKERS, GpuJobSpec
from gpupack_crds.priority import PriorityProblem
from gpupack_kubeclient import objects
from gpupack_kubeclient.errors import KubeError
from gpupack_kubeclient.objects import Json
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.pending.request import GangRequest
from gpupack_scheduler.requests import gang_request
from gpupack_scheduler.requests.gang_request import WorkerPod
from gpupack_scheduler.requests.node_rules import MAX_BYTES


class _Template(objects.View, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Templated(objects.View, frozen=True):
    template: _Template | None = None
    roles: "tuple[_Templated, ...]" = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job that the API server accepts.

    Attributes:
        name: its name.
        spec: its spec.
        pod_specs: the PodSpec of each role as written; of a job without roles, that of all workers.
    """

    name: str
    spec: GpuJobSpec
    pod_specs: tuple[msgspec.Raw, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NotQueued:
    """The reason why a job would not enter the queue; `permanent`: it would fail."""

    reason: str
    message: str
    permanent: bool = False


def parse_checked_job(spec: Json) -> CheckedJob:
    """Return a job that the caller has checked; the API server does not confirm it here.

    It is used only for an answer. Types, the schema's limits and the number of GPUs are checked,
    which limits the cost of a plan. Rules between other fields are not checked.

    Raises:
        CallInvalid: it is not a spec of a GPUJob.
    """
    try:
        job = _decode(PREFIX, msgspec.json.encode(spec))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallInvalid("job", "", f"send the spec that the dry run returned: {error}") from error
    parts = job.spec.roles or (job.spec,)
    if any((part.gpus is None) == (part.share is None) for part in parts):
        raise CallInvalid("job", "", "set exactly one of gpus and share")
    if job.spec.workers > MAX_WORKERS:
        raise CallInvalid("job", "", f"a job can have at most {MAX_WORKERS} workers in all")
    if sum(part.workers * (part.gpus or 1) for part in parts) > MAX_GPUS:
        raise CallInvalid(
            "job", "", f"a job can have at most {MAX_GPUS} GPUs in all (workers x gpus)"
        )
    return job


def parse_judged_job(job: JudgedJob) -> CheckedJob:
    """Return the job of the API server's answer.

    Raises:
        KubeError: the API server accepts a spec that this release cannot read.
    """
    try:
        return _decode(job.metadata.name or PREFIX, job.spec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise KubeError(f"the API server accepts a spec that is not readable: {error}") from error


def _decode(name: str, spec: bytes | msgspec.Raw) -> CheckedJob:
    found = msgspec.json.decode(spec, type=_Templated)
    parts = found.roles or (found,)
    pod_specs = tuple((part.template or _Template()).spec for part in parts)
    return CheckedJob(name, msgspec.json.decode(spec, type=GpuJobSpec), pod_specs)


def build_request(
    job: CheckedJob,
    *,
    namespace: str,
    policy: str,
    priority_of: Callable[[GpuJobSpec], int | PriorityProblem],
    observed: Collection[str],
    now: float,
) -> GangRequest | NotQueued:
    """Return the job's request, as the operator would send it.

    Args:
        job: the job.
        namespace: namespace of the job.
        policy: policy in place of the job's own; empty: the job's own.
        priority_of: returns the priority by number or class.
        observed: resources of other device plugins.
        now: seconds since the epoch.
    """
    spec = job.spec
    priority = priority_of(spec)
    if spec.suspend:
        return NotQueued("Suspended", "spec.suspend is true")
    if isinstance(priority, PriorityProblem):
        return NotQueued(priority.reason, priority.message)
    if max(len(bytes(each)) for each in job.pod_specs) > MAX_BYTES:
        return NotQueued("InvalidTemplate", f"spec.template has more than {MAX_BYTES} bytes")
    try:
        pods = tuple(map(WorkerPod.read, job.pod_specs))
        gang = gang_request.gang(spec, pods, observed, namespace=namespace)
    except RequestInvalid as error:
        return NotQueued("InvalidTemplate", str(error), permanent=True)
    return GangRequest(
        attempt=AttemptKey(namespace=namespace, job=job.name, job_uid=PREFIX + job.name, number=1),
        gang=gang,
        policy=policy or spec.policy,
        priority=priority,
        submitted=now,
        duration=spec.active_deadline_seconds,
        movable=spec.movable,
        extra=spec.extra,
        model_fallback_seconds=spec.model_fallback_seconds,
    )
