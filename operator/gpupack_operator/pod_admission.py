# SPDX-License-Identifier: Apache-2.0
"""What does the API server make of the first pod of a GPUJob? Asked by a dry run, before a plan.

A plan holds GPUs, and a Job whose pods a quota or an admission policy refuses holds them until
somebody notices that no pod comes. The dry run goes through the whole of admission, quotas and
Pod Security among it, and leaves nothing behind. Its answer is the pod as admission has changed it,
which is the one to plan.

Only the first pod is tried: what is left of a quota may not do for the others, or for those of jobs
that begin at the same time. Such an attempt ends before all its pods exist (outcome.not_created),
and pauses its namespace (creation_backoff).

What is allowed to one job is allowed to those that differ from it in nothing but their names and
what their programs are given (`manifests.pod.kind`): a thousand of them cost one dry run, not a
thousand. Where admission goes by names it may be wrong; then, too, the attempt ends and pauses its
namespace. Pods that have been made since count against a quota, so a yes lasts no longer than until
the next attempt of its namespace begins.

What admission makes of a pod may change, so a yes lasts no longer than until the first look at a
job that waits, and twice as long each time that the answer is the same, up to MAX_ALLOWED_SECONDS.
Such a job asks at least every ten minutes (plan_line.py) and when its turn comes.

Pods that differ in more cost a dry run each, and so does an edit of a job that waits. A namespace
has DRY_RUNS_BURST of them at once and then one in DRY_RUN_SECONDS, since each goes through all
admission webhooks. Past that the last answer counts, where there is one, or the job waits a while.

An admission webhook that cannot do dry runs makes the API server refuse them all; then nothing is
known, and the plan is asked for with the template.
"""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.objects import Json, Object
from gpupack_kube.resources import PODS, Resource
from gpupack_operator import planned_spec
from gpupack_operator.decision.model import NotPlanned
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.plan_line import FIRST_LOOK_SECONDS
from gpupack_operator.remembered import Remembered
from gpupack_serving.peer_limits import TokenBuckets

ALLOWED_SECONDS = FIRST_LOOK_SECONDS
"""How long a yes is good for. A thousand jobs that are alike and begin to wait cost one dry run."""

MAX_ALLOWED_SECONDS: Final = 60.0

DRY_RUNS_BURST: Final = 64
DRY_RUN_SECONDS: Final = 0.5
LIMITED_SECONDS: Final = 15.0
"""How soon a job asks again whose namespace has used its dry runs."""

MAX_KEPT_YES: Final = 1024
"""Each has a pod of at most MAX_STORED_BYTES; the oldest go, which costs their jobs a dry run."""

DOUBTFUL_SECONDS: Final = 1.0
"""The same where pods of other jobs are about to count. The Job controller takes about as long to
make the first: dry runs of those that are let in within a moment would all say the same."""

FIRST_REFUSED_SECONDS = 5.0
MAX_REFUSED_SECONDS = 60.0
"""A no is good for longer each time, so that jobs that wait for a quota cost little."""

OVER_QUOTA: Final = "is forbidden: exceeded quota: "
NO_DRY_RUNS = "does not support dry run"
WRONG = {
    "Invalid": re.compile(r'Pod "[^"]*" is invalid: '),
    "BadRequest": re.compile(r'Pod in version "[^"]*" cannot be handled as a Pod: '),
}
"""How the API server's own validation and its decoder begin, by the reason of their refusal. A
policy's refusal may have the same status code and hold such words, but begins with «pods "…" is
forbidden», a webhook's with «admission webhook»; both may be lifted."""


class _TriedPod(Object, frozen=True):
    """A pod that a dry run answered."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


_TRIED_PODS: Final = Resource(PODS.prefix, PODS.plural, _TriedPod)


@dataclasses.dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod that the API server takes.

    Attributes:
        spec: what decides where it fits (planned_spec.py), as JSON; None: it is not known what
            admission makes of it.
    """

    spec: bytes | None = None


UNKNOWN: Final = AdmittedPod()


@dataclasses.dataclass(frozen=True, slots=True)
class _Yes:
    """When it was given, by the monotonic clock in seconds, and whether in doubt."""

    at: float
    in_doubt: bool
    pod: AdmittedPod
    seconds: float = ALLOWED_SECONDS

    @property
    def until(self) -> float:
        return self.at + self.seconds

    def good_until(self, *, in_doubt: bool) -> float:
        is_doubtful = in_doubt or self.in_doubt
        return self.at + (DOUBTFUL_SECONDS if is_doubtful else self.seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class _Began:
    """When the last attempt of a namespace did; no yes from before is good by `until`."""

    at: float

    @property
    def until(self) -> float:
        return self.at + MAX_ALLOWED_SECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class _No:
    """What forbids the pods, until when not to ask again, and how long that was from the start."""

    said: str
    until: float
    seconds: float


class PodAdmission:
    """Asks the API server, and remembers the answer for a while.

    Args:
        api: the API server.
        clock: monotonic seconds.
    """

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._refused = Remembered[tuple[str, int, int], _No](
            clock, linger_seconds=MAX_REFUSED_SECONDS
        )
        """By uid, attempt and revision; those of jobs that are gone go in time."""
        self._allowed = Remembered[tuple[str, str], _Yes](
            clock, linger_seconds=MAX_ALLOWED_SECONDS, most=MAX_KEPT_YES
        )
        """By namespace and kind."""
        self._began = Remembered[str, _Began](clock, linger_seconds=0.0)
        """By namespace."""
        self._dry_runs = TokenBuckets(burst=DRY_RUNS_BURST, seconds=DRY_RUN_SECONDS, clock=clock)
        """By namespace."""

    def begins(self, namespace: str) -> None:
        """Pods of an attempt are about to be made there."""
        self._began.keep(namespace, _Began(self._clock()))

    async def review(
        self, job: GpuJob, template: Json, *, kind: str, attempt: int, in_doubt: bool = False
    ) -> AdmittedPod | NotPlanned:
        """The first pod as admission makes it; or why no plan is to be asked for.

        Args:
            job: the GPUJob.
            template: its workers' pod template.
            kind: of its pods; equal where they differ in names alone.
            attempt: the attempt that is to begin.
            in_doubt: whether a yes is good for a moment alone.

        Raises:
            KubeError: the API server gave no answer.
        """
        key = (job.metadata.uid, attempt, job.spec.revision)
        pods = (job.metadata.namespace, kind)
        no, now = self._refused.get(key), self._clock()
        if no is not None and now < no.until:
            return _forbidden(no, seconds=no.until - now)
        yes = self._allowed.get(pods)
        is_doubtful = in_doubt or self._is_outdated(yes, pods[0])
        if yes and now < yes.good_until(in_doubt=is_doubtful):
            return yes.pod
        if not self._dry_runs.take(pods[0]):
            return _limited(pods[0], no, None if is_doubtful else yes)
        try:
            found = await self._review(first_pod(job, template, attempt=attempt))
        except errors.Invalid as error:
            return NotPlanned(JobReason.INVALID_TEMPLATE, error.said, for_good=True)
        if isinstance(found, AdmittedPod):
            self._keep(pods, _Yes(now, in_doubt, found, _good_for(yes, found)))
            self._refused.forget(key)
            return found
        seconds = _doubled(no)
        no = _No(found, self._clock() + seconds, seconds)
        self._refused.keep(key, no)
        self._allowed.forget(pods)
        return _forbidden(no, seconds=seconds)

    async def refusal(self, pod: Json) -> str:
        """Say why the API server refuses a pod of several workers; empty: it does not, or unknown.

        A quota counts what workers ask for, whether they share a pod or not: its refusal is none.

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
        """The PodSpec as admission makes it; None: that is not known.

        Raises:
            Invalid, Forbidden: the API server refuses the pod.
            KubeError: it gave no answer.
        """
        namespace = pod["metadata"]["namespace"]
        try:
            tried = await self._api.create(_TRIED_PODS, pod, namespace=namespace, dry_run=True)
        except errors.AlreadyExists:
            return None
        except (errors.Forbidden, errors.Invalid) as error:
            if not _is_wrong(error) and NO_DRY_RUNS in error.said:
                return None
            raise
        return tried.spec

    def _keep(self, pods: tuple[str, str], yes: _Yes) -> None:
        """Any tenant may have pods as large as an object can be: those are tried each time."""
        if len(yes.pod.spec or b"") <= planned_spec.MAX_STORED_BYTES:
            self._allowed.keep(pods, yes)
        else:
            self._allowed.forget(pods)

    def _is_outdated(self, yes: _Yes | None, namespace: str) -> bool:
        began = self._began.get(namespace)
        return yes is not None and began is not None and began.at >= yes.at

    async def _review(self, pod: Json) -> AdmittedPod | str:
        """The pod, or what forbids it.

        Raises:
            Invalid: the pod is wrong.
        """
        try:
            spec = await self.try_pod(pod)
        except (errors.Forbidden, errors.Invalid) as error:
            if _is_wrong(error):
                raise
            return error.said
        return UNKNOWN if spec is None else AdmittedPod(planned_spec.read(spec))


def _good_for(last: _Yes | None, pod: AdmittedPod) -> float:
    """How long a yes is good for that follows another."""
    if last is None or last.pod != pod:
        return ALLOWED_SECONDS
    return min(2 * last.seconds, MAX_ALLOWED_SECONDS)


def _limited(namespace: str, no: _No | None, yes: _Yes | None) -> AdmittedPod | NotPlanned:
    """What is answered without a dry run: what the last one said, or that there is none now."""
    if no is not None:
        return _forbidden(no, seconds=LIMITED_SECONDS)
    if yes is not None and not yes.in_doubt:
        return yes.pod
    return NotPlanned(
        reason=JobReason.DRY_RUNS_LIMITED,
        message=(
            f"jobs of namespace {namespace} whose pods all differ, or that are edited often, "
            f"use its {1 / DRY_RUN_SECONDS:.0f} dry runs of a pod in a second; tried again every "
            f"{LIMITED_SECONDS:.0f} s"
        ),
        retry_seconds=LIMITED_SECONDS,
    )


def _forbidden(no: _No, *, seconds: float) -> NotPlanned:
    return NotPlanned(
        reason=JobReason.CREATION_FORBIDDEN,
        message=f"{no.said}; asked again within {MAX_REFUSED_SECONDS + LIMITED_SECONDS:.0f} s",
        retry_seconds=seconds,
    )


def first_pod(job: GpuJob, template: Json, *, attempt: int) -> Json:
    """The pod of worker 0 as the Job controller will make it, but for its name's random end.

    A name of its own for each try would give each refusal another text.
    """
    name = f"{names.job_name(job.metadata.name, attempt=attempt)}-0"
    metadata = template["metadata"] | {"name": name, "namespace": job.metadata.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _is_wrong(error: errors.Refused) -> bool:
    begins = WRONG.get(error.reason)
    return begins is not None and begins.match(error.said) is not None


def _doubled(last: _No | None) -> float:
    return min(2 * last.seconds, MAX_REFUSED_SECONDS) if last else FIRST_REFUSED_SECONDS
