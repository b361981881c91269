# SPDX-License-Identifier: Apache-2.0
"""The queue of whoever decides, as an onlooker knows it from the API objects; for questions.

    who runs                 by the ledger's claims, as any standby follows them
    who waits                GPUJobs that wait by their statuses; pods of their own behind our gate
    for whom others end      what stands in statuses and annotations
    quotas, averages         GPUQuotas and GPUCohorts
    what policies go by      the outlook that is published (outlooks.py)

It decides nothing, and nobody hears of it. A question is answered by the queue's own cycles on a
copy (gpupack_core.queueing.question); what these find out of those who wait is remembered here, as
cycles would have. Of what no object tells, an onlooker knows nothing: places that are decided and
not written yet, and who went past whom on a guess.
"""

import datetime as dt
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from typing import Final

import gpupack_core as core
from gpupack_core.queueing.state import Findings
from gpupack_crds.gpujob_status import Preemption
from gpupack_kube import objects
from gpupack_scheduling.asks import gang_ask
from gpupack_scheduling.decisions import Decisions
from gpupack_scheduling.errors import QueueFull
from gpupack_scheduling.ledger.asking_job import AskingJob, AskingSpec
from gpupack_scheduling.ledger.claims import Allocation
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.policies import Policies
from gpupack_scheduling.queueing.admissions import Admissions
from gpupack_scheduling.queueing.ask import GangAsk
from gpupack_scheduling.queueing.hears import Hears
from gpupack_scheduling.queueing.quotas import QuotaStores
from gpupack_scheduling.queueing.turns import Turns

log = logging.getLogger(__name__)

MAX_TRIED: Final = 32
"""Of those outside the queue each time: a namespace may have any number, and each takes a third of
a millisecond."""

PriorityOf = Callable[[AskingSpec], int | None]
"""The priority that a job is planned with; None: its class does not let it be."""


class _Unheard:
    """Who decides writes into pods; an onlooker does not."""

    def open(self, pod: objects.Pod, place: Allocation | None) -> None:
        """Nothing."""

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Nothing."""


class Onlooker:
    """Follows; thread-confined to the event loop.

    Args:
        ledger: what is held, and by whom.
        policies: where a gang goes.
        quotas: GPUQuotas and GPUCohorts.
        now: seconds since the epoch, by the API server's clock.
        decisions: as those of whoever decides.
        priority_of: by PriorityClass or number.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        quotas: QuotaStores,
        *,
        now: Callable[[], float],
        decisions: Decisions,
        priority_of: PriorityOf,
    ) -> None:
        self._ledger, self._decisions = ledger, decisions
        self._priority_of = priority_of
        self.admissions = Admissions(
            ledger,
            policies,
            Hears(Turns(), _Unheard()),
            quotas=quotas,
            now=now,
            decisions=decisions,
        )
        self._waiting: dict[str, AskingJob] = {}
        """By UID."""
        self._unseen: set[str] = set()
        """UIDs of jobs that are to be looked at."""
        self._outside: dict[str, str] = {}
        """UIDs of jobs that wait and are not in the queue, and why not; whose turn to be tried is
        next comes first."""

    def see(self, job: AskingJob) -> None:
        """A GPUJob appeared or changed."""
        if job.waits:
            self._waiting[job.metadata.uid] = job
        else:
            self._waiting.pop(job.metadata.uid, None)
        self._unseen.add(job.metadata.uid)

    def see_gone(self, job: AskingJob) -> None:
        """A GPUJob is gone."""
        self._waiting.pop(job.metadata.uid, None)
        self._unseen.add(job.metadata.uid)

    def see_all(self, jobs: Iterable[AskingJob]) -> None:
        """These are all."""
        self._unseen |= self._waiting.keys()
        self._waiting.clear()
        for job in jobs:
            self.see(job)

    def see_priorities(self) -> None:
        """Another class says how urgent some jobs are."""
        named = (uid for uid, job in self._waiting.items() if job.spec.priority_class_name)
        self._unseen.update(named)

    def follow(self) -> None:
        """Take in what has changed; before each question, and now and then.

        Where queue and ledger contradict each other all is taken in anew.
        """
        try:
            self._follow()
        except core.LedgerConflict:
            log.exception("the queue is followed anew")
            self.admissions.begin_anew()
            self._unseen |= self._waiting.keys()
            self._follow()

    def attempt(self, uid: str) -> AttemptKey | None:
        """Which attempt of a GPUJob waits in the queue; None: none does."""
        job = self._waiting.get(uid)
        return None if job is None or uid in self._outside else _attempt(job)

    def obstacle(self, uid: str) -> str:
        """Why a GPUJob that waits is not in the queue; empty: it is, or does not wait."""
        return self._outside.get(uid, "")

    def remember(self, found: Findings, fork: core.Cluster) -> None:
        """What cycles on a copy found out, if nothing was decided there."""
        self.admissions.queue.state.remember(found)
        self._ledger.cluster.learn(fork)

    def _follow(self) -> None:
        self.admissions.see()
        unseen, self._unseen = self._unseen.union(islice(self._outside, MAX_TRIED)), set()
        for uid in sorted(unseen, key=self._by_age):
            self._outside.pop(uid, None)
            if (job := self._waiting.get(uid)) is None:
                self.admissions.withdraw(uid)
            else:
                self._submit(job)

    def _by_age(self, uid: str) -> tuple[float, str]:
        """Who came first goes in first where a namespace may have no more."""
        job = self._waiting.get(uid)
        return (-inf if job is None else _created(job), uid)

    def _submit(self, job: AskingJob) -> None:
        uid, ask = job.metadata.uid, self._ask(job)
        if isinstance(ask, str):
            self.admissions.withdraw(uid)
            self._outside[uid] = ask
            return
        try:
            self.admissions.submit(ask)
        except QueueFull as error:
            self.admissions.withdraw(uid)
            self._outside[uid] = str(error)

    def _ask(self, job: AskingJob) -> GangAsk | str:
        """As the operator would ask; or why not."""
        priority = self._priority_of(job.spec)
        if priority is None:
            return f"PriorityClass {job.spec.priority_class_name} does not let it wait"
        gang = gang_ask.of_placed(job, self._decisions.observed_resources)
        if gang is None:
            return "what it asks for cannot be read, or it names too many nodes"
        now = dt.datetime.fromtimestamp(self.admissions.now(), dt.UTC)
        held_since = job.status.held_since
        return GangAsk(
            attempt=_attempt(job),
            gang=gang,
            policy=job.spec.policy if job.spec.policy in core.POLICIES else None,
            priority=priority,
            submitted=_created(job),
            since=since.timestamp() if (since := job.waits_since) else None,
            duration=job.seconds_left,
            version=job.metadata.resource_version,
            avoid=job.status.to_avoid(now, self._decisions.avoid_seconds),
            movable=job.spec.movable,
            extra=job.spec.extra,
            held_since=held_since.timestamp() if held_since else None,
        )


def _attempt(job: AskingJob) -> AttemptKey:
    meta = job.metadata
    number = job.status.attempt + 1
    return AttemptKey(namespace=meta.namespace, job=meta.name, job_uid=meta.uid, number=number)


def _created(job: AskingJob) -> float:
    created = job.metadata.creation_timestamp
    return created.timestamp() if created else 0.0
