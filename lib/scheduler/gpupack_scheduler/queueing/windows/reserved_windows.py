# SPDX-License-Identifier: Apache-2.0
"""GPUReservations from the watch, as windows of the queue, and what ends for these windows.

    objects ─► schedules ─► within the quota? ─► windows of the queue: the current and the next
                  └ unreadable    └ refused: the status says why, and nothing is held

The preemptions are in the queue's state alone. A new leader finds the same victims again, or other
ones: each of them may be preempted by the same rules.
"""

import dataclasses
import datetime as dt
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.kinds import GpuReservation
from gpupack_crds.plan import Stop
from gpupack_crds.times import format_seconds
from gpupack_devices.units import WHOLE_GPU
from gpupack_placement import Request, Toleration, TolerationOperator
from gpupack_queue import Queue, ReservationId, Tenant, Window
from gpupack_queue.errors import InvalidWindow
from gpupack_queue.windows.acceptance import MAX_PER_TENANT, Claim, Excess, refused
from gpupack_queue.windows.recurrence import Interval, Schedule
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.request import is_attempt, pods_of, reservation_id
from gpupack_scheduler.queueing.pods.conditions import Eviction
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.running.holders import has_ended

REASON: Final = "TimeWindow"
MAX_AGE_SECONDS: Final = 86_400.0
"""The time after which the windows of a reservation are computed again: the horizon moves."""

_EVERY_TAINT: Final = (Toleration(operator=TolerationOperator.EXISTS),)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """The windows of one object, as they were computed."""

    uid: str
    intervals: tuple[Interval, ...]
    problem: str
    until: float
    """Time at which they are computed again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Why a reservation does not stand; `reason` is that of its condition."""

    reason: str
    message: str


class Windows:
    """The windows of all GPUReservations; they are computed when something changes.

    Args:
        quotas: the objects from the watch.
        ledger: the claims.

    Attributes:
        problems: why reservations do not stand.
    """

    def __init__(self, quotas: QuotaStores, ledger: Ledger) -> None:
        self._quotas, self._ledger = quotas, ledger
        self._known: dict[tuple[str, str], _Known] = {}
        self._applied: int | None = None
        """The number of changes that were applied; None: none were."""
        self._due_at = -inf
        self.problems: Mapping[ReservationId, Problem] = {}

    def apply(self, queue: Queue, now: float) -> None:
        """Give the queue the windows that stand; no effect if nothing has changed."""
        if self._applied == self._quotas.changes and now < self._due_at:
            return
        self._applied = self._quotas.changes
        items = self._quotas.reservations.items
        self._known = {key: self._read(item, now) for key, item in items.items()}
        self._due_at = min((known.until for known in self._known.values()), default=inf)
        claims = {key: _claim(items[key], known) for key, known in self._known.items()}
        excess = refused(claims.values(), queue.state.quota.tree)
        self.problems = {
            claim.reservation: problem
            for key, claim in claims.items()
            if (problem := _problem(self._known[key], claim, excess.get(claim.reservation)))
        }
        standing = (key for key, claim in claims.items() if claim.reservation not in self.problems)
        queue.set_windows(
            window for key in standing for window in _windows(items[key], claims[key])
        )

    def forget(self) -> None:
        """Forget what was applied, because the queue is rebuilt."""
        self._applied = None

    def stops(self, queue: Queue) -> Iterator[Stop]:
        """Yield attempts that must end for windows and have not been ended yet."""
        for reservation, preemption in queue.state.window_preemptions.items():
            namespace, _, name = reservation.partition("/")
            for victim in preemption.victims:
                runs = is_attempt(victim) and victim in queue.state.running
                if runs and not has_ended(self._ledger, victim):
                    yield Stop(attempt=victim, reason=REASON, namespace=namespace, pod=name)

    def evictions(self, queue: Queue) -> Iterator[Eviction]:
        """Yield standalone pods that must end for windows and are not being deleted yet."""
        for reservation, preemption in queue.state.window_preemptions.items():
            namespace, _, name = reservation.partition("/")
            for victim in preemption.victims:
                for claim in pods_of(self._ledger.claims, victim):
                    if claim.leaves or claim.state is not State.BOUND:
                        continue
                    is_own = claim.namespace == namespace
                    of_others = "a reservation of another namespace"
                    whose = f"reservation {name}" if is_own else of_others
                    why = f"for {whose}, {PREEMPTION_TEXTS[REASON]}"
                    yield Eviction(claim.uid, claim.namespace, claim.name, REASON, why)

    def _read(self, item: GpuReservation, now: float) -> _Known:
        known = self._known.get(item.key)
        if known is not None and known.uid == item.metadata.uid and now < known.until:
            return known
        try:
            intervals = _schedule(item).intervals(dt.datetime.fromtimestamp(now, dt.UTC))
        except InvalidWindow as error:
            return _Known(item.metadata.uid, (), str(error), inf)
        ends = intervals[0][1] if intervals else inf
        return _Known(item.metadata.uid, intervals, "", min(ends, now + MAX_AGE_SECONDS))


def id_of(item: GpuReservation) -> ReservationId:
    """Return the ID of a reservation in the queue."""
    found = reservation_id(item.metadata.namespace, item.metadata.name)
    assert found is not None  # noqa: S101 - each object has a name
    return found


def _schedule(item: GpuReservation) -> Schedule:
    spec = item.spec
    start, end = (_moment(text) for text in (spec.start_time, spec.end_time))
    return Schedule(start, end, spec.recurrence or "", spec.time_zone)


def _moment(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidWindow(f"{text!r} is no time with its offset from UTC")
    return found.astimezone(dt.UTC)


def _claim(item: GpuReservation, known: _Known) -> Claim:
    spec, created = item.spec, item.metadata.creation_timestamp
    milli = spec.total_gpus * WHOLE_GPU
    declared = created.timestamp() if created else 0.0
    tenant = Tenant(item.metadata.namespace)
    return Claim(id_of(item), tenant, spec.model, milli, declared, known.intervals)


def _windows(item: GpuReservation, claim: Claim) -> Iterator[Window]:
    """Yield the current and the next window."""
    spec = item.spec
    request = Request(gpus=spec.gpus_per_unit, models=(spec.model,), tolerations=_EVERY_TAINT)
    for start, end in claim.intervals[:2]:
        yield Window(
            claim.reservation,
            claim.tenant,
            spec.units,
            request,
            start,
            end,
            claim.declared,
            spec.users,
        )


def _problem(known: _Known, claim: Claim, excess: Excess | None) -> Problem | None:
    if known.problem:
        return Problem("InvalidWindow", known.problem)
    if not claim.milli or not claim.model:
        return Problem("InvalidWindow", "it names no GPU model or no number of GPUs")
    if excess is None:
        return None
    if excess.is_too_many:
        return Problem(
            "TooManyReservations",
            f"the namespace has {MAX_PER_TENANT} older reservations; delete some of them",
        )
    at = format_seconds(excess.at)
    others = f" and older reservations {excess.others // WHOLE_GPU}" if excess.others else ""
    return Problem(
        "QuotaExceeded",
        f"at {at} it reserves {claim.milli // WHOLE_GPU} GPUs{others}, and the quota of the "
        f"namespace guarantees {excess.nominal // WHOLE_GPU} {claim.model}; reserve fewer, or get "
        "a larger nominal quota",
    )
