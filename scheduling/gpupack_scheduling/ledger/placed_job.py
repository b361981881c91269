# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with nothing but what ledger and queue read: hardly anything makes one unreadable.

`gpupack_crds.kinds.GpuJob` was rejected here: its enums refuse an object that a newer release
wrote, and places that the ledger does not see are given away.
"""

import datetime as dt
from typing import Any, Final

import msgspec

from gpupack_crds import job_times, names
from gpupack_crds.gpujob import MAX_EXTRA_WORKERS, MAX_WORKERS
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_crds.placement import NodePlacement
from gpupack_kube import objects
from gpupack_kube.resources import Resource
from gpupack_scheduling.asks import pod_resources
from gpupack_scheduling.asks.needs import NO_NEEDS, Needs
from gpupack_scheduling.asks.node_rules import MAX_BYTES, NodeRules
from gpupack_scheduling.errors import AskInvalid

_LONGEST_SECONDS: Final = 31_536_000.0
"""A year, as the CRD has it."""

_NOT_PLACED: Final = frozenset({"Pending", "Suspended", "Succeeded", "Failed"})


NO_RULES: Final = msgspec.Raw(b"{}")
UNREADABLE_RULES: Final = msgspec.Raw(b"null")


class PlacedJobTemplate(objects.View, frozen=True):
    """The partial pod template; nothing is kept of it but what its resources are counted by.

    And of a job that may be moved, on which nodes it may run.
    """

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    rules: msgspec.Raw = NO_RULES

    def __post_init__(self) -> None:
        """Drop the rest, which its author may have made as large as an object can be."""
        msgspec.structs.force_setattr(self, "rules", _rules(self.spec))
        try:
            kept = msgspec.json.encode(msgspec.json.decode(self.spec, type=objects.PodSpec))
        except (msgspec.MsgspecError, RecursionError):
            kept = b"{}"
        msgspec.structs.force_setattr(self, "spec", msgspec.Raw(kept))


class PlacedPlannedPod(PlacedJobTemplate, frozen=True):
    """The pod as the operator planned it: the template, and what admission made of it.

    Attributes:
        omitted: it is too large to be written.
    """

    omitted: bool = False


def _rules(spec: msgspec.Raw) -> msgspec.Raw:
    """What is too long, or cannot be read, names no nodes: nobody may be moved by it."""
    if len(bytes(spec)) > MAX_BYTES:
        return UNREADABLE_RULES
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(spec, type=NodeRules)))
    except (msgspec.MsgspecError, RecursionError):
        return UNREADABLE_RULES


class PlacedJobSpec(objects.View, frozen=True):
    """Of the spec, what tells CPU, memory and the GPUs of a worker, where they may be, how long."""

    template: PlacedJobTemplate | None = None
    workers: int = 1
    min_workers: int | None = None
    gpus: int | None = None
    share: dict[str, Any] | None = None
    mig: str | None = None
    resource_name: str = names.GPU
    gpu_models: tuple[str, ...] = ()
    min_memory: str | None = None
    interconnect: str = "any"
    spread: dict[str, Any] | None = None
    policy: str | None = None
    movable: bool = False
    active_deadline_seconds: float | None = None
    suspend: bool = False

    @property
    def least(self) -> int:
        """Workers that start together or not at all, of whatever the spec says."""
        workers = min(max(self.workers, 1), MAX_WORKERS)
        return workers if self.min_workers is None else min(max(self.min_workers, 1), workers)

    @property
    def extra(self) -> int:
        """Workers that may run beside those."""
        return min(self.workers - self.least, MAX_EXTRA_WORKERS) if self.workers > 0 else 0


class PlacedAttempt(objects.View, frozen=True):
    """One attempt."""

    number: int = 0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    outcome: str | None = None
    shares_pods: Any = None

    @property
    def last_ran_at(self) -> dt.datetime | None:
        """When its last worker ended, or else when its end was written; None: it has not ended.

        The end may be written much later, by an operator that was down.
        """
        if self.finished_at is None or self.ended_at is None:
            return self.finished_at
        return min(self.ended_at, self.finished_at)

    @property
    def seconds(self) -> float | None:
        """How long it took; None: it has not ended."""
        if self.started_at is None or self.last_ran_at is None:
            return None
        return max((self.last_ran_at - self.started_at).total_seconds(), 0.0)


class PlacedVictims(objects.View, frozen=True):
    """Who is stopped with the same right."""

    ground: str = ""
    attempts: tuple[str, ...] = ()


class PlacedPreemption(objects.View, frozen=True):
    """Who is stopped for a job, and where it will run."""

    since: str = ""
    victims: tuple[PlacedVictims, ...] = ()
    placement: tuple[NodePlacement, ...] = ()


class PlacedJobStatus(objects.View, frozen=True):
    """Of the status, who is placed where, and since when."""

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

    @property
    def holds_placement(self) -> bool:
        """Whether the places belong to the job; in a phase that is not known they do."""
        return self.phase not in _NOT_PLACED and bool(self.placement)


class PlacedJob(objects.Object, frozen=True):
    """A GPUJob as far as ledger and queue read it."""

    spec: PlacedJobSpec = PlacedJobSpec()
    status: PlacedJobStatus = PlacedJobStatus()

    def __post_init__(self) -> None:
        """Keep one pod of the two, and where it may run only if the job itself is read for that.

        A job that waits says it when it asks; of the others, those that may move or grow are read.
        """
        planned = self.planned
        if planned is self.status.planned_pod:
            msgspec.structs.force_setattr(self.spec, "template", None)
        if not self.keeps_rules:
            msgspec.structs.force_setattr(planned, "rules", NO_RULES)

    @property
    def planned(self) -> PlacedJobTemplate:
        """The pod that a worker is planned as, as far as that is written; or else its template."""
        pod = self.status.planned_pod
        if pod is not None and not pod.omitted:
            return pod
        return self.spec.template or PlacedJobTemplate()

    @property
    def keeps_rules(self) -> bool:
        """Whether it is kept on which nodes it may run."""
        return self.may_move or self.may_grow

    @property
    def may_move(self) -> bool:
        """Whether it has places, and may be moved to others."""
        return self.spec.movable and self.status.holds_placement

    @property
    def may_grow(self) -> bool:
        """Whether it has places, and more workers may get some."""
        return self.spec.extra > 0 and self.status.holds_placement

    @property
    def may_wait(self) -> bool:
        """Whether it may be waiting for places: not ended, suspended or being deleted."""
        ended = self.status.phase in ENDED_PHASES
        return not (ended or self.spec.suspend or self.metadata.deletion_timestamp)

    @property
    def started_at(self) -> dt.datetime | None:
        """When the current attempt began."""
        current = (each for each in self.status.attempts if each.number == self.status.attempt)
        return next((each.started_at for each in current), None)

    @property
    def ends_at(self) -> dt.datetime | None:
        """When its deadline is over, if it goes on; None: it has none, or no attempt runs."""
        left, begun = self.seconds_left, self.started_at
        if left is None or begun is None or self.has_ended:
            return None
        return begun + dt.timedelta(seconds=left)

    @property
    def has_ended(self) -> bool:
        """Whether its last attempt has."""
        attempts = self.status.attempts
        return bool(attempts) and attempts[-1].finished_at is not None

    @property
    def seconds_left(self) -> float | None:
        """What is left of its deadline for the attempt that runs, or for the next; None: none."""
        limit = self.spec.active_deadline_seconds
        limit = None if limit is None else min(max(limit, 0.0), _LONGEST_SECONDS)
        left = job_times.seconds_left(limit, max(self.status.active_seconds, 0.0))
        return None if left is None else max(left, 1.0)

    @property
    def waits_since(self) -> dt.datetime | None:
        """Since when its next attempt waits, as far as is shown."""
        ends = (each.finished_at for each in self.status.attempts)
        made = self.metadata.creation_timestamp
        return job_times.waits_since((made, self.status.resumed_at, *ends))

    @property
    def needs(self) -> Needs:
        """What a worker needs as far as the job tells; nothing where it cannot be read."""
        try:
            spec = msgspec.json.decode(self.planned.spec, type=objects.PodSpec)
            return pod_resources.needs(spec, (self.spec.resource_name,)).bounded()
        except AskInvalid:
            return NO_NEEDS

    @property
    def tickets(self) -> dict[str, int]:
        """What the kubelet counts for a worker whose devices the status does not name."""
        mig, resource = self.spec.mig, self.spec.resource_name
        name = names.mig_resource(mig) if mig else resource
        return {name: self.spec.gpus} if self.spec.gpus else {}


PLACED_JOBS = Resource(names.API_PREFIX, "gpujobs", PlacedJob)
