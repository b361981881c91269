# SPDX-License-Identifier: Apache-2.0
"""Writes that no watch event has shown: the object is read until their outcome is known.

The watch may hang while a Binding or a plan is written. So a place is released not after a fixed
time, but when the pod or the GPUJob, read after that time, shows that it may be. An object that the
write has not changed yet proves nothing at first, since the write may still be under way; the API
server ends every request after a minute (--request-timeout), so a write that has not arrived
GIVE_UP_SECONDS after it was sent never arrives.

Bindings and plans have one task each: neither waits for the other's answers.
"""

import abc
import asyncio
import logging
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from gpupack_crds.placement import by_worker
from gpupack_extender import binding
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_scheduler.ledger.claims import PodClaim, State, WorkerClaim
from gpupack_scheduler.ledger.ledger import Ledger, Outcome
from gpupack_scheduler.ledger.placed_job import PLACED_JOBS, PlacedJob

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 180.0

FIRST_WORKER = 0
"""If its place is among those to be written, the whole attempt is written."""

Plan = tuple[WorkerClaim, ...]
"""Plan of one attempt, by worker index; never empty."""

Write = TypeVar("Write")


class UnconfirmedWrites(abc.ABC, Generic[Write]):
    """Settler of writes of one kind that neither an answer nor the watch has settled."""

    look_seconds: ClassVar[float]
    """Interval between two checks of unconfirmed writes."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        self._api = api
        self._ledger = ledger

    async def run(self) -> None:
        """Ask about every unconfirmed write, until cancelled."""
        while True:
            await asyncio.sleep(self.look_seconds)
            for write in self.unconfirmed():
                await self.ask(write)

    async def ask(self, write: Write) -> None:
        """Read the object, and record the outcome in the ledger if it shows one."""
        try:
            outcome = await self._outcome(write)
        except errors.KubeError as error:
            log.warning("%s, written or not: %s", self._name(write), error)
        else:
            self._settle(write, outcome)

    @abc.abstractmethod
    def unconfirmed(self) -> Sequence[Write]:
        """Return the writes that the watch should have shown by now."""

    @abc.abstractmethod
    async def _outcome(self, write: Write) -> Outcome:
        """Return the outcome that the object, read now, shows. A KubeError shows none."""

    @abc.abstractmethod
    def _settle(self, write: Write, outcome: Outcome) -> None:
        """Record the outcome in the ledger."""

    @abc.abstractmethod
    def _name(self, write: Write) -> str:
        """Describe the write for users."""

    def _may_land(self, claim: PodClaim | WorkerClaim) -> bool:
        return self._ledger.age_seconds(claim) <= GIVE_UP_SECONDS


class UnconfirmedBinds(UnconfirmedWrites[PodClaim]):
    """Unconfirmed Bindings; the pod shows their outcome."""

    look_seconds = 5.0

    def unconfirmed(self) -> Sequence[PodClaim]:
        """Return the Bindings that were sent at least one interval ago."""
        return self._ledger.unconfirmed(older_than_seconds=self.look_seconds)

    async def _outcome(self, write: PodClaim) -> Outcome:
        may_have_landed = write.state is State.LANDED or self._may_land(write)
        pod = await binding.read_pod(
            self._api, namespace=write.namespace, name=write.name, uid=write.uid
        )
        return binding.judge(pod, write, may_have_landed=may_have_landed)

    def _settle(self, write: PodClaim, outcome: Outcome) -> None:
        self._ledger.settle(write, outcome)

    def _name(self, write: PodClaim) -> str:
        return f"binding of pod {write.namespace}/{write.name}"


class UnconfirmedPlans(UnconfirmedWrites[Plan]):
    """Unconfirmed plans; the GPUJob shows their outcome.

    The places of an existing GPUJob that cannot be read are free once no write can arrive: nothing
    else would ever settle them, and pods that were bound to them hold them by claims of their own.
    """

    look_seconds = 1.0

    def unconfirmed(self) -> Sequence[Plan]:
        """Return the plans whose time is over."""
        return self._ledger.overdue_plans()

    async def _outcome(self, write: Plan) -> Outcome:
        may_land = self._may_land(write[0])
        attempt = write[0].worker.attempt
        try:
            job = await self._api.get(PLACED_JOBS, attempt.job, namespace=attempt.namespace)
        except errors.NotFound:
            job = None
        except (errors.Unreachable, errors.Refused):
            raise
        except errors.KubeError as error:
            log.warning("%s, written or not, cannot be read: %s", attempt, error)
            return Outcome.UNKNOWN if may_land else Outcome.NOT_LANDED
        return judge_plan(job, write, may_land=may_land)

    def _settle(self, write: Plan, outcome: Outcome) -> None:
        self._ledger.settle_plan(write, outcome)

    def _name(self, write: Plan) -> str:
        return str(write[0].worker.attempt)


def judge_plan(job: PlacedJob | None, plan: Plan, *, may_land: bool) -> Outcome:
    """Return the outcome of a plan that a GPUJob, read after the plan's time, shows.

    Args:
        job: the GPUJob of that name; None: there is none.
        plan: the places in the answer.
        may_land: whether a write that was sent in time may still arrive.
    """
    attempt, version = plan[0].worker.attempt, plan[0].version
    planned = {claim.worker.index for claim in plan}
    if job is None or job.metadata.uid != attempt.job_uid:
        return Outcome.NOT_LANDED
    if job.status.attempt > attempt.number:
        return Outcome.NOT_LANDED
    if job.status.attempt == attempt.number:
        if not job.status.holds_placement:
            return Outcome.NOT_LANDED
        placed = {worker.worker for worker in by_worker(job.status.placement)}
        if FIRST_WORKER in planned or planned <= placed:
            return Outcome.LANDED
    if version and job.metadata.resource_version != version:
        return Outcome.NOT_LANDED
    return Outcome.UNKNOWN if may_land else Outcome.NOT_LANDED
