# SPDX-License-Identifier: Apache-2.0
"""A GPUJob that is asked about: judged by the API server as if it were made, and read as the plan.

The API server's dry run goes by the caller's own token: his rights, the schema and its rules, and
admission are judged where they are for `kubectl apply`, and what is absent has its default.
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.priority import PriorityProblem
from gpupack_kube import objects
from gpupack_kube.client import Api
from gpupack_kube.errors import KubeError
from gpupack_kube.objects import Json
from gpupack_kube.resources import Resource
from gpupack_scheduling.asks import gang_ask
from gpupack_scheduling.asks.node_rules import MOST_BYTES
from gpupack_scheduling.errors import AskInvalid
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.queueing.ask import GangAsk

PREFIX: Final = "what-if-"
"""The API server makes a name of it."""


class _Template(objects.View, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Templated(objects.View, frozen=True):
    template: _Template | None = None


class AskedJob(objects.Object, frozen=True):
    """As the API server answers; its spec as it was written, with defaults."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


ASKED_JOBS: Final = Resource(names.API_PREFIX, "gpujobs", AskedJob)


@dataclasses.dataclass(frozen=True, slots=True)
class Unaskable:
    """Why it would not be planned; `for_good`: it would fail."""

    reason: str
    message: str
    for_good: bool = False


async def judged(api: Api, spec: Json, *, namespace: str) -> AskedJob:
    """The job that `kubectl apply` would make.

    Args:
        api: calls on behalf of whoever asks.
        spec: of a GPUJob.
        namespace: where it would be.

    Raises:
        KubeError: it is refused, or the API server gave no answer.
    """
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"generateName": PREFIX},
        "spec": spec,
    }
    return await api.create(ASKED_JOBS, manifest, namespace=namespace, dry_run=True, strict=True)


def _read(job: AskedJob) -> GpuJobSpec:
    try:
        return msgspec.json.decode(job.spec, type=GpuJobSpec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise KubeError(f"the API server takes what cannot be read here: {error}") from error


def ask_of(
    job: AskedJob,
    *,
    namespace: str,
    policy: str,
    priority_of: Callable[[GpuJobSpec], int | PriorityProblem],
    observed: Collection[str],
    now: float,
) -> GangAsk | Unaskable:
    """As the operator would ask for it.

    Args:
        job: as the API server answered.
        namespace: where it would be.
        policy: instead of its own; empty: its own.
        priority_of: by number or class.
        observed: resources of other device plugins.
        now: seconds since the epoch.

    Raises:
        KubeError: the API server takes what cannot be read here: it knows another release.
    """
    spec = _read(job)
    priority = priority_of(spec)
    if spec.suspend:
        return Unaskable("Suspended", "spec.suspend is true")
    if isinstance(priority, PriorityProblem):
        return Unaskable(priority.reason, priority.message)
    template = msgspec.json.decode(job.spec, type=_Templated).template or _Template()
    if len(bytes(template.spec)) > MOST_BYTES:
        return Unaskable("InvalidTemplate", f"spec.template has more than {MOST_BYTES} bytes")
    try:
        gang = gang_ask.gang(spec, template.spec, observed, namespace=namespace)
    except AskInvalid as error:
        return Unaskable("InvalidTemplate", str(error), for_good=True)
    name = job.metadata.name or PREFIX
    return GangAsk(
        attempt=AttemptKey(namespace=namespace, job=name, job_uid=PREFIX + name, number=1),
        gang=gang,
        policy=policy or spec.policy,
        priority=priority,
        submitted=now,
        duration=spec.active_deadline_seconds,
        movable=spec.movable,
        extra=spec.extra,
    )
