# SPDX-License-Identifier: Apache-2.0
"""Dry run of a GPUJob's first pod, before a plan: whether the API server accepts it, and how it is.

A plan holds GPUs, and a Job whose pods a quota or an admission policy refuses holds them until the
operator detects that no pod comes. The dry run passes through all of admission, including quotas
and Pod Security, and leaves nothing behind. Its answer is the pod as admission has changed it, and
that pod is planned.

Only the first pod is tried: the rest of a quota may not suffice for the others, or for those of
jobs that begin at the same time. Such an attempt ends before all its pods exist
(outcome.not_created), and pauses its namespace (creation_backoff).

What is allowed for one job is allowed for those that differ only in their names and in what their
programs get (`manifests.pod.template_hash`): a thousand of them cost one dry run. Where admission
depends on names this may be wrong; then, too, the attempt ends and pauses its namespace.
Pods that were created since count against a quota, so an approval is valid at most until the next
attempt of its namespace begins.

Admission's result for a pod may change, so an approval is valid at most until the first repeated
request of a waiting job, and twice as long each time that the answer is the same, up to
MAX_ALLOWED_SECONDS. Such a job requests at least every ten minutes (waiting_jobs.py) and when it
can be admitted.

Pods that differ in more cost one dry run each, and so does an edit of a waiting job. A namespace
has DRY_RUNS_BURST of them at once and then one in DRY_RUN_SECONDS, since each passes through all
admission webhooks. Beyond that the last answer counts, if there is one, or the job waits a while.

An admission webhook that does not support dry runs makes the API server refuse them all; then
nothing is known, and the plan is requested with the template.
"""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_httpserver.peer_limits import TokenBuckets
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Json, Object
from gpupack_kubeclient.resources import PODS, Resource
from gpupack_operator import planned_spec
from gpupack_operator.decision.model import NoPlan
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.expiring_cache import ExpiringCache
from gpupack_operator.manifests.worker_kind import WorkerKind
from gpupack_operator.waiting_jobs import FIRST_REPEAT_SECONDS

ALLOWED_SECONDS = FIRST_REPEAT_SECONDS
"""Validity of an approval. A thousand equal jobs that begin to wait cost one dry run."""

MAX_ALLOWED_SECONDS: Final = 60.0

DRY_RUNS_BURST: Final = 64
DRY_RUN_SECONDS: Final = 0.5
LIMITED_SECONDS: Final = 15.0
"""Delay until the next request of a job whose namespace has used its dry runs."""

MAX_APPROVALS: Final = 1024
"""Each has a pod of at most MAX_STORED_BYTES; the oldest are dropped, which costs a dry run."""

DOUBTFUL_SECONDS: Final = 1.0
"""Validity of an approval while pods of other jobs are about to count. The Job controller takes
about as long to create the first pod: dry runs of jobs that are admitted within this time would all
have the same answer.
"""

FIRST_REFUSED_SECONDS = 5.0
MAX_REFUSED_SECONDS = 60.0
"""Longest validity of a refusal; it grows each time: jobs that wait for a quota cost little."""

OVER_QUOTA: Final = "is forbidden: exceeded quota: "
NO_DRY_RUNS = "does not support dry run"
INVALID_POD_PATTERNS = {
    "Invalid": re.compile(r'Pod "[^"]*" is invalid: '),
    "BadRequest": re.compile(r'Pod in version "[^"]*" cannot be handled as a Pod: '),
}
"""Beginnings of the messages of the API server's own validation and its decoder, by the reason of
their refusal. A policy's refusal may have the same status code and contain such words, but begins
with «pods "…" is forbidden», a webhook's with «admission webhook»; both may be lifted.
"""


class _TriedPod(Object, frozen=True):
    """Pod that a dry run answered."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


_TRIED_PODS: Final = Resource(PODS.prefix, PODS.plural, _TriedPod)


@dataclasses.dataclass(frozen=True, slots=True)
class AdmittedPod:
    """Pod that the API server accepts.

    Attributes:
        spec: the parts that decide where it fits (planned_spec.py), as JSON; None: the pod after
            admission is not known.
    """

    spec: bytes | None = None


UNKNOWN: Final = AdmittedPod()


@dataclasses.dataclass(frozen=True, slots=True)
class _Approval:
    """Approval with its time, by the monotonic clock in seconds.

    A quota may have been uncertain then: pods of other jobs were about to count.
    """

    at: float
    is_quota_uncertain: bool
    pod: AdmittedPod
    seconds: float = ALLOWED_SECONDS

    @property
    def until(self) -> float:
        return self.at + self.seconds

    def valid_until(self, *, is_quota_uncertain: bool) -> float:
        is_doubtful = is_quota_uncertain or self.is_quota_uncertain
        return self.at + (DOUBTFUL_SECONDS if is_doubtful else self.seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class _AttemptStart:
    """Start of a namespace's last attempt; no earlier approval is valid after `until`."""

    at: float

    @property
    def until(self) -> float:
        return self.at + MAX_ALLOWED_SECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """Refusal: what forbids the pods, and until when and for how many seconds it is valid."""

    said: str
    until: float
    seconds: float


class PodAdmission:
    """Client that makes dry runs and caches the answers.

    Args:
        api: the API server.
        clock: monotonic seconds.
    """

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._refused = ExpiringCache[tuple[str, int, int, str], _Refusal](
            clock, linger_seconds=MAX_REFUSED_SECONDS
        )
        """Refusals by UID, attempt, revision and role; those of deleted jobs expire."""
        self._allowed = ExpiringCache[tuple[str, str], _Approval](
            clock, linger_seconds=MAX_ALLOWED_SECONDS, max_entries=MAX_APPROVALS
        )
        """Permissions by namespace and kind."""
        self._began = ExpiringCache[str, _AttemptStart](clock, linger_seconds=0.0)
        """Starts of attempts by namespace."""
        self._dry_runs = TokenBuckets(burst=DRY_RUNS_BURST, seconds=DRY_RUN_SECONDS, clock=clock)
        """Dry runs by namespace."""

    def begins(self, namespace: str) -> None:
        """Record that pods of an attempt are about to be created in a namespace."""
        self._began.put(namespace, _AttemptStart(self._clock()))

    async def review(
        self,
        workers: WorkerKind,
        template: Json,
        *,
        kind: str,
        attempt: int,
        is_quota_uncertain: bool = False,
    ) -> AdmittedPod | NoPlan:
        """Return the first pod after admission, or why no plan may be requested.

        Args:
            workers: all workers of the GPUJob, or those of a role.
            template: their pod template.
            kind: hash of its pods; equal if they differ only in names.
            attempt: the attempt that will begin.
            is_quota_uncertain: whether an approval is valid only briefly.

        Raises:
            KubeError: the API server gave no answer.
        """
        job = workers.job
        key = (job.metadata.uid, attempt, job.spec.revision, workers.name)
        pods = (job.metadata.namespace, kind)
        no, now = self._refused.get(key), self._clock()
        if no is not None and now < no.until:
            return _forbidden(no, seconds=no.until - now)
        yes = self._allowed.get(pods)
        is_doubtful = is_quota_uncertain or self._is_outdated(yes, pods[0])
        if yes and now < yes.valid_until(is_quota_uncertain=is_doubtful):
            return yes.pod
        if not self._dry_runs.take(pods[0]):
            return _limited(pods[0], no, None if is_doubtful else yes)
        try:
            found = await self._review(first_pod(workers, template, attempt=attempt))
        except errors.Invalid as error:
            return NoPlan(JobReason.INVALID_TEMPLATE, error.said, permanent=True)
        if isinstance(found, AdmittedPod):
            self._keep(
                pods, _Approval(now, is_quota_uncertain, found, _validity_seconds(yes, found))
            )
            self._refused.forget(key)
            return found
        seconds = _doubled(no)
        no = _Refusal(found, self._clock() + seconds, seconds)
        self._refused.put(key, no)
        self._allowed.forget(pods)
        return _forbidden(no, seconds=seconds)

    async def refusal(self, pod: Json) -> str:
        """Return why the API server refuses a shared pod; empty: it does not, or it is not known.

        A quota counts the workers' requests, whether they share a pod or not: its refusal is
        ignored.

        Raises:
            KubeError: the API server gave no answer.
        """
        if not self._dry_runs.take(pod["metadata"]["namespace"]):
            return ""
        try:
            await self.try_pod(pod)
        except (errors.Forbidden, errors.Invalid) as error:
            return "" if OVER_QUOTA in error.said else error.said
        except errors.Refused as error:
            if error.is_too_large:
                return error.said
            raise
        return ""

    async def try_pod(self, pod: Json) -> msgspec.Raw | None:
        """Return the PodSpec after admission; None: it is not known.

        Raises:
            Invalid, Forbidden: the API server refuses the pod.
            KubeError: the API server gave no answer.
        """
        namespace = pod["metadata"]["namespace"]
        try:
            tried = await self._api.create(_TRIED_PODS, pod, namespace=namespace, dry_run=True)
        except errors.AlreadyExists:
            return None
        except (errors.Forbidden, errors.Invalid) as error:
            if not _is_invalid(error) and NO_DRY_RUNS in error.said:
                return None
            raise
        return tried.spec

    def _keep(self, pods: tuple[str, str], yes: _Approval) -> None:
        """Keep an approval; a very large pod is tried each time, since any tenant may have one."""
        if len(yes.pod.spec or b"") <= planned_spec.MAX_STORED_BYTES:
            self._allowed.put(pods, yes)
        else:
            self._allowed.forget(pods)

    def _is_outdated(self, yes: _Approval | None, namespace: str) -> bool:
        began = self._began.get(namespace)
        return yes is not None and began is not None and began.at >= yes.at

    async def _review(self, pod: Json) -> AdmittedPod | str:
        """Return the pod, or what forbids it.

        Raises:
            Invalid: the pod is invalid.
        """
        try:
            spec = await self.try_pod(pod)
        except (errors.Forbidden, errors.Invalid) as error:
            if _is_invalid(error):
                raise
            return error.said
        return UNKNOWN if spec is None else AdmittedPod(planned_spec.read(spec))


def _validity_seconds(last: _Approval | None, pod: AdmittedPod) -> float:
    """Return the validity in seconds of an approval that follows another."""
    if last is None or last.pod != pod:
        return ALLOWED_SECONDS
    return min(2 * last.seconds, MAX_ALLOWED_SECONDS)


def _limited(namespace: str, no: _Refusal | None, yes: _Approval | None) -> AdmittedPod | NoPlan:
    """Return the answer without a dry run: the last one, or that none is possible now."""
    if no is not None:
        return _forbidden(no, seconds=LIMITED_SECONDS)
    if yes is not None and not yes.is_quota_uncertain:
        return yes.pod
    return NoPlan(
        reason=JobReason.DRY_RUN_LIMIT_EXCEEDED,
        message=(
            f"jobs of namespace {namespace} whose pods all differ, or that are edited often, "
            f"use its {1 / DRY_RUN_SECONDS:.0f} dry runs of a pod in a second; tried again every "
            f"{LIMITED_SECONDS:.0f} s"
        ),
        retry_seconds=LIMITED_SECONDS,
    )


def _forbidden(no: _Refusal, *, seconds: float) -> NoPlan:
    return NoPlan(
        reason=JobReason.CREATION_FORBIDDEN,
        message=f"{no.said}; tried again within {MAX_REFUSED_SECONDS + LIMITED_SECONDS:.0f} s",
        retry_seconds=seconds,
    )


def first_pod(workers: WorkerKind, template: Json, *, attempt: int) -> Json:
    """Return the first pod as the Job controller will create it, without its name's random suffix.

    A different name for each try would give each refusal a different text.
    """
    job = workers.job
    name = f"{names.job_name(job.metadata.name, attempt=attempt)}-{workers.first}"
    metadata = template["metadata"] | {"name": name, "namespace": job.metadata.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _is_invalid(error: errors.Refused) -> bool:
    begins = INVALID_POD_PATTERNS.get(error.reason)
    return begins is not None and begins.match(error.said) is not None


def _doubled(last: _Refusal | None) -> float:
    return min(2 * last.seconds, MAX_REFUSED_SECONDS) if last else FIRST_REFUSED_SECONDS
