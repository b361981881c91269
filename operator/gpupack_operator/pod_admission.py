# SPDX-License-Identifier: Apache-2.0
"""Would the API server take the first pod of a GPUJob? Asked by a dry run, before a plan.

A plan holds GPUs, and a Job whose pods a quota or an admission policy refuses holds them until
somebody notices that no pod comes. The dry run goes through the whole of admission, quotas and
Pod Security among it, and leaves nothing behind.

Only the first pod is tried: what is left of a quota may not do for the others, or for those of jobs
that begin at the same time. Such an attempt ends before all its pods exist (outcome.not_created),
and pauses its namespace (creation_backoff).

An admission webhook that cannot do dry runs makes the API server refuse them all; then nothing is
known, and the plan is asked for.
"""

import dataclasses
import re
import time
from collections.abc import Callable

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.objects import Json
from gpupack_kube.resources import PODS
from gpupack_operator.decision.model import NotPlanned
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.remembered import Remembered

ALLOWED_SECONDS = 300.0
"""How long a yes is good for: waiting jobs ask for plans far more often than quotas change."""

FIRST_REFUSED_SECONDS = 5.0
MAX_REFUSED_SECONDS = 60.0
"""A no is good for longer each time, so that jobs that wait for a quota cost little."""

NO_DRY_RUNS = "does not support dry run"
WRONG = {
    "Invalid": re.compile(r'Pod "[^"]*" is invalid: '),
    "BadRequest": re.compile(r'Pod in version "[^"]*" cannot be handled as a Pod: '),
}
"""How the API server's own validation and its decoder begin, by the reason of their refusal. A
policy's refusal may have the same status code and hold such words, but begins with «pods "…" is
forbidden», a webhook's with «admission webhook»; both may be lifted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Review:
    """What the API server said last of the pods of an attempt.

    Attributes:
        refusal: its text; empty: it takes them.
        until: when to ask again, by the monotonic clock, in seconds.
        seconds: how long the answer was good for from the start.
    """

    refusal: str
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
        self._reviews = Remembered[tuple[str, int], Review](
            clock, linger_seconds=MAX_REFUSED_SECONDS
        )
        """By uid and attempt; those of jobs that are gone go in time."""

    async def refusal(
        self, job: GpuJob, template: Json, *, attempt: int, anew: bool = False
    ) -> NotPlanned | None:
        """Why no plan is to be asked for; None where the API server takes the first pod.

        Args:
            job: the GPUJob.
            template: its workers' pod template.
            attempt: the attempt that is to begin.
            anew: whether a yes is asked for again although it is good for longer.

        Raises:
            KubeError: the API server gave no answer.
        """
        key = (job.metadata.uid, attempt)
        last = self._reviews.get(key)
        if last is None or last.until <= self._clock() or (anew and not last.refusal):
            try:
                last = await self._review(job, template, attempt=attempt, last=last)
            except errors.Invalid as error:
                return NotPlanned(JobReason.INVALID_TEMPLATE, error.said, for_good=True)
            self._reviews.keep(key, last)
        if not last.refusal:
            return None
        return NotPlanned(
            reason=JobReason.CREATION_FORBIDDEN,
            message=f"{last.refusal}; asked again every {MAX_REFUSED_SECONDS:.0f} s or sooner",
            retry_seconds=max(last.until - self._clock(), 0.0),
        )

    async def _review(
        self, job: GpuJob, template: Json, *, attempt: int, last: Review | None
    ) -> Review:
        try:
            await self._api.create(
                PODS,
                first_pod(job, template, attempt=attempt),
                namespace=job.metadata.namespace,
                dry_run=True,
            )
        except errors.AlreadyExists:
            refusal = ""
        except (errors.Forbidden, errors.Invalid) as error:
            refusal = "" if NO_DRY_RUNS in error.said else error.said
            if _is_wrong(error):
                raise
        else:
            refusal = ""
        seconds = _doubled(last) if refusal else ALLOWED_SECONDS
        return Review(refusal=refusal, until=self._clock() + seconds, seconds=seconds)


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


def _doubled(last: Review | None) -> float:
    if last is None or not last.refusal:
        return FIRST_REFUSED_SECONDS
    return min(2 * last.seconds, MAX_REFUSED_SECONDS)
