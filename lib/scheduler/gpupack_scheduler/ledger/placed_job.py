# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with only the fields that ledger and queue read: hardly anything is unreadable.

`gpupack_crds.kinds.GpuJob` was rejected here: its enums refuse an object that a newer release
wrote, and places that the ledger does not see are given away.
"""

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec

from gpupack_crds import job_times, names
from gpupack_crds.gpujob import MAX_EXTRA_WORKERS, MAX_WORKERS, MIN_FALLBACK_SECONDS
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_crds.placement import NodePlacement
from gpupack_kubeclient import objects
from gpupack_kubeclient.resources import Resource
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.requests import pod_resources
from gpupack_scheduler.requests.needs import NO_NEEDS, Needs
from gpupack_scheduler.requests.node_rules import MAX_BYTES, NodeRules
from gpupack_scheduler.requests.pod_times import grace_of

_LONGEST_SECONDS: Final = 31_536_000.0
"""One year, as in the CRD."""

_NOT_PLACED: Final = frozenset({"Pending", "Suspended", "Succeeded", "Failed"})


NO_RULES: Final = msgspec.Raw(b"{}")
UNREADABLE_RULES: Final = msgspec.Raw(b"null")


class PlacedJobTemplate(objects.View, frozen=True):
    """The partial pod template: only the fields by which its resources are counted.

    Of a job that may move, it also has the rules about nodes.
    """

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    rules: msgspec.Raw = NO_RULES
    grace: float = 0.0
    """Seconds that a worker may take to end."""

    def __post_init__(self) -> None:
        """Drop the other fields, which their author may have made as large as an object can be."""
        msgspec.structs.force_setattr(self, "rules", _rules(self.spec))
        try:
            read = msgspec.json.decode(self.spec, type=objects.PodSpec)
        except (msgspec.MsgspecError, RecursionError):
            read = objects.PodSpec()
        msgspec.structs.force_setattr(self, "grace", grace_of(read))
        msgspec.structs.force_setattr(self, "spec", msgspec.Raw(msgspec.json.encode(read)))


class PlacedPlannedPod(PlacedJobTemplate, frozen=True):
    """The pod as the operator planned it: the template after admission.

    Attributes:
        omitted: the pod is too large to be written.
    """

    omitted: bool = False


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_SECONDS)


def _rules(spec: msgspec.Raw) -> msgspec.Raw:
    """Return the rules about nodes; unreadable ones if they are too long or cannot be read.

    A job with unreadable rules does not move.
    """
    if len(bytes(spec)) > MAX_BYTES:
        return UNREADABLE_RULES
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(spec, type=NodeRules)))
    except (msgspec.MsgspecError, RecursionError):
        return UNREADABLE_RULES


class PlacedRole(objects.View, frozen=True):
    """The fields of a role for its workers' CPU, memory and GPUs, and their places."""

    name: str = ""
    workers: int = 1
    gpus: int | None = None
    share: dict[str, Any] | None = None
    gpu_models: tuple[str, ...] = ()
    min_memory: str | None = None
    interconnect: str = "any"
    spread: dict[str, Any] | None = None
    template: PlacedJobTemplate | None = None

    @property
    def count(self) -> int:
        """Return the number of its workers, for any value in the spec."""
        return min(max(self.workers, 1), MAX_WORKERS)


class PlacedRoleStatus(objects.View, frozen=True):
    """The pod of a role as the operator planned it."""

    name: str = ""
    planned_pod: PlacedPlannedPod | None = None


class PlacedJobSpec(objects.View, frozen=True):
    """The fields of the spec for a worker's CPU, memory and GPUs, their places and the duration."""

    template: PlacedJobTemplate | None = None
    roles: tuple[PlacedRole, ...] = ()
    workers: int = 1
    min_workers: int | None = None
    gpus: int | None = None
    share: dict[str, Any] | None = None
    mig: str | None = None
    resource_name: str = names.GPU
    gpu_models: tuple[str, ...] = ()
    gpu_model_fallback: dict[str, Any] | None = None
    min_memory: str | None = None
    interconnect: str = "any"
    spread: dict[str, Any] | None = None
    policy: str | None = None
    reservation: str | None = None
    movable: bool = False
    active_deadline_seconds: float | None = None
    suspend: bool = False

    def __post_init__(self) -> None:
        """Count the workers of all roles."""
        if self.roles:
            workers = min(sum(role.count for role in self.roles), MAX_WORKERS)
            msgspec.structs.force_setattr(self, "workers", workers)

    def of_role(self, role: PlacedRole) -> Self:
        """Return the spec with what a role's workers request, as if all workers were of it."""
        return msgspec.structs.replace(
            self,
            roles=(),
            workers=role.count,
            template=role.template,
            gpus=role.gpus,
            share=role.share,
            gpu_models=role.gpu_models,
            min_memory=role.min_memory,
            interconnect=role.interconnect,
            spread=role.spread,
        )

    @property
    def least(self) -> int:
        """Return how many workers start together or not at all, for any value in the spec."""
        workers = min(max(self.workers, 1), MAX_WORKERS)
        return workers if self.min_workers is None else min(max(self.min_workers, 1), workers)

    @property
    def model_fallback_seconds(self) -> float | None:
        """Return the pending time that permits one more model; None: the models have no order."""
        seconds = (self.gpu_model_fallback or {}).get("afterSeconds")
        if not isinstance(seconds, int | float):
            return None
        return min(max(float(seconds), MIN_FALLBACK_SECONDS), _LONGEST_SECONDS)

    @property
    def extra(self) -> int:
        """Return the maximum number of extra workers in addition to those."""
        return min(self.workers - self.least, MAX_EXTRA_WORKERS) if self.workers > 0 else 0


class PlacedAttempt(objects.View, frozen=True):
    """One attempt of a GPUJob."""

    number: int = 0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    outcome: str | None = None
    shares_pods: Any = None

    @property
    def last_ran_at(self) -> dt.datetime | None:
        """Return the end of the last worker, or else when the end was written; None: not ended.

        An operator that was down may write the end much later.
        """
        if self.finished_at is None or self.ended_at is None:
            return self.finished_at
        return min(self.ended_at, self.finished_at)

    @property
    def seconds(self) -> float | None:
        """Return the duration of the attempt; None if it has not ended."""
        if self.started_at is None or self.last_ran_at is None:
            return None
        return max((self.last_ran_at - self.started_at).total_seconds(), 0.0)


class PlacedVictims(objects.View, frozen=True):
    """Victims of a preemption with one reason."""

    reason: str = ""
    attempts: tuple[str, ...] = ()


class PlacedPreemption(objects.View, frozen=True):
    """The preemption for a job: its victims, and the place where the job will run."""

    since: str = ""
    victims: tuple[PlacedVictims, ...] = ()
    placement: tuple[NodePlacement, ...] = ()


class PlacedRunLimit(objects.View, frozen=True):
    """The maximum run time by the job's cohort."""

    seconds: float | None = None


class PlacedJobStatus(objects.View, frozen=True):
    """The fields of the status for the placement, and since when it exists."""

    phase: str = "Pending"
    attempt: int = 0
    placement: tuple[NodePlacement, ...] = ()
    attempts: tuple[PlacedAttempt, ...] = ()
    resumed_at: dt.datetime | None = None
    active_seconds: float = 0.0
    priority: int = 0
    preemption: PlacedPreemption | None = None
    held_since: dt.datetime | None = None
    planned_pod: PlacedPlannedPod | None = None
    roles: tuple[PlacedRoleStatus, ...] = ()
    run_limit: PlacedRunLimit | None = None

    @property
    def holds_placement(self) -> bool:
        """Tell whether the places belong to the job; in an unknown phase they do."""
        return self.phase not in _NOT_PLACED and bool(self.placement)


class PlacedJob(objects.Object, frozen=True):
    """A GPUJob as far as ledger and queue read it."""

    spec: PlacedJobSpec = PlacedJobSpec()
    status: PlacedJobStatus = PlacedJobStatus()

    def __post_init__(self) -> None:
        """Keep one of the two pods, and its rules about nodes only if the job is read for them.

        A pending job sends its rules with its request. Of the others, those that may move or grow
        are read.
        """
        parts = self.by_role
        for part in parts:
            if not self.keeps_rules:
                msgspec.structs.force_setattr(part.planned, "rules", NO_RULES)
        for role, part in zip(self.spec.roles, parts, strict=False):
            msgspec.structs.force_setattr(role, "template", part.spec.template)
        planned, template = self.planned, self.spec.template
        if planned is self.status.planned_pod:
            # A planned pod that an earlier release wrote has no grace period.
            grace = max(planned.grace, template.grace if template else 0.0)
            msgspec.structs.force_setattr(planned, "grace", grace)
            msgspec.structs.force_setattr(self.spec, "template", None)

    @property
    def by_role(self) -> "tuple[PlacedJob, ...]":
        """Return a job for the workers of each role; of a job without roles itself."""
        if not self.spec.roles:
            return (self,)
        pods = {role.name: role.planned_pod for role in self.status.roles}
        return tuple(
            msgspec.structs.replace(
                self,
                spec=self.spec.of_role(role),
                status=msgspec.structs.replace(
                    self.status, roles=(), planned_pod=pods.get(role.name)
                ),
            )
            for role in self.spec.roles
        )

    @property
    def by_worker(self) -> "Iterator[PlacedJob]":
        """Yield the job of the role of each worker, by index; without an end."""
        parts = self.by_role
        for part in parts[:-1]:
            yield from itertools.repeat(part, part.spec.workers)
        yield from itertools.repeat(parts[-1])

    @property
    def planned(self) -> PlacedJobTemplate:
        """Return the planned pod of a worker, if it is written; else the job's template."""
        pod = self.status.planned_pod
        if pod is not None and not pod.omitted:
            return pod
        return self.spec.template or PlacedJobTemplate()

    @property
    def keeps_rules(self) -> bool:
        """Tell whether the job's rules about nodes are kept."""
        return self.may_move or self.may_grow

    @property
    def may_move(self) -> bool:
        """Tell whether the job has places and may move to others."""
        return self.spec.movable and self.status.holds_placement

    @property
    def grace(self) -> float:
        """Return the seconds that its workers may take to end."""
        return max(part.planned.grace for part in self.by_role)

    @property
    def may_grow(self) -> bool:
        """Tell whether the job has places and more workers may get places."""
        return self.spec.extra > 0 and self.status.holds_placement

    @property
    def may_wait(self) -> bool:
        """Tell whether the job may wait for places: not ended, suspended or being deleted."""
        ended = self.status.phase in ENDED_PHASES
        return not (ended or self.spec.suspend or self.metadata.deletion_timestamp)

    @property
    def started_at(self) -> dt.datetime | None:
        """Return the start of the current attempt."""
        current = (each for each in self.status.attempts if each.number == self.status.attempt)
        return next((each.started_at for each in current), None)

    @property
    def ends_at(self) -> dt.datetime | None:
        """Return when its deadline is over; None if it has none, or no attempt runs."""
        left, begun = self.seconds_left, self.started_at
        if left is None or begun is None or self.has_ended:
            return None
        return begun + dt.timedelta(seconds=left)

    @property
    def has_ended(self) -> bool:
        """Tell whether its last attempt has ended."""
        attempts = self.status.attempts
        return bool(attempts) and attempts[-1].finished_at is not None

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until its deadline for the running or next attempt; None if none."""
        own, limit = _bounded(self.spec.active_deadline_seconds), self.status.run_limit
        of_cohort = None if limit is None else _bounded(limit.seconds)
        left = job_times.seconds_left(own, of_cohort, max(self.status.active_seconds, 0.0))
        return None if left is None else max(left, 1.0)

    @property
    def waits_since(self) -> dt.datetime | None:
        """Return the time since which its next attempt waits, as far as the status shows it."""
        ends = (each.finished_at for each in self.status.attempts)
        made = self.metadata.creation_timestamp
        return job_times.waits_since((made, self.status.resumed_at, *ends))

    @property
    def needs(self) -> Needs:
        """Return a worker's needs as far as the job shows them; nothing if they are unreadable.

        Of a job with roles, each part of `by_role` has its own.
        """
        try:
            spec = msgspec.json.decode(self.planned.spec, type=objects.PodSpec)
            return pod_resources.needs(spec, (self.spec.resource_name,)).bounded()
        except RequestInvalid:
            return NO_NEEDS

    @property
    def tickets(self) -> dict[str, int]:
        """Return what the kubelet counts for a worker whose devices the status does not name."""
        mig, resource = self.spec.mig, self.spec.resource_name
        name = names.mig_resource(mig) if mig else resource
        return {name: self.spec.gpus} if self.spec.gpus else {}


PLACED_JOBS = Resource(names.API_PREFIX, "gpujobs", PlacedJob)
