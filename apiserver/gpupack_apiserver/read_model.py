# SPDX-License-Identifier: Apache-2.0
"""The cluster from the API server's objects, with the ledger's own code."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpupack_apiserver.freshness import Watch, missing_of
from gpupack_apiserver.positions import Positions
from gpupack_apiserver.priority_classes import PriorityClasses
from gpupack_apiserver.settings import Settings
from gpupack_apiserver.shown_job import SHOWN_JOBS, ShownJob
from gpupack_crds.kinds import GPUCOHORTS, GPUNODES, GPUQUOTAS, GPURESERVATIONS
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import NODES, PRIORITY_CLASSES
from gpupack_placement import Cluster, Policy
from gpupack_scheduler.errors import NotReady
from gpupack_scheduler.ledger.jobs import Jobs
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.published_forecast import PublishedForecast
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue

JobKey = tuple[str, str]
"""Namespace and name of a job."""


class JobStore:
    """The GPUJobs' store of the ledger and the queue, which also keeps them for answers."""

    def __init__(self, ledger_jobs: Jobs, queue_copy: ReadOnlyQueue) -> None:
        self._ledger_jobs, self._queue_copy = ledger_jobs, queue_copy
        self.by_key: dict[JobKey, ShownJob] = {}
        self.on_change: Callable[[Iterable[JobKey]], None] = lambda _: None
        """Called with the jobs that changed or were removed."""

    def replace(self, items: list[ShownJob], /) -> None:
        """Replace all jobs."""
        before, self.by_key = self.by_key, {item.key: item for item in items}
        self._ledger_jobs.replace([*items])
        self._queue_copy.see_all(items)
        self.on_change(_changed_keys(before, self.by_key))

    def upsert(self, item: ShownJob, /) -> None:
        """Add or update a job."""
        self.by_key[item.key] = item
        self._ledger_jobs.upsert(item)
        self._queue_copy.see(item)
        self.on_change((item.key,))

    def remove(self, item: ShownJob, /) -> None:
        """Remove a job."""
        self.by_key.pop(item.key, None)
        self._ledger_jobs.remove(item)
        self._queue_copy.see_gone(item)
        self.on_change((item.key,))


class ReadModel:
    """The state of the cluster, which watches fill.

    Attributes:
        ledger: what is held.
        quotas: GPUQuotas, GPUCohorts and GPUReservations.
        jobs: GPUJobs.
        policies: the extender's placement policies; a task to run.
        classes: PriorityClasses.
        queue_copy: a read-only copy of the extender's queue, for questions.
        positions: positions in that queue.
    """

    def __init__(self, settings: Settings, *, now: Callable[[], float] = time.time) -> None:
        """Create the model; `now` returns seconds since the epoch, by the API server's clock."""
        decisions = self.decisions = settings.decisions
        self._fresh_seconds = settings.stale_after_seconds
        self.ledger = Ledger(
            time.monotonic,
            observed_resources=decisions.observed_resources,
            acceptance=decisions.acceptance,
            max_priority=decisions.max_priority,
        )
        self.quotas = QuotaStores()
        self.policies = Policies(
            decisions.policy, PublishedForecast(self.quotas), known=decisions.demand_forecast
        )
        self.classes = PriorityClasses(max_priority=decisions.max_priority)
        self.queue_copy = ReadOnlyQueue(
            self.ledger,
            self.policies,
            self.quotas,
            now=now,
            decisions=decisions,
            priority_of=self.classes.priority_of,
        )
        self.classes.changed = self.queue_copy.see_priorities
        self.positions = Positions(self.queue_copy)
        self.jobs = JobStore(self.ledger.jobs, self.queue_copy)
        self.watches: Mapping[str, Watch] = {}

    def reflectors(self, api: Api) -> dict[str, Reflector[Any]]:
        """Return the reflectors that keep it equal to the API server's state; tasks to run."""
        made: dict[str, Reflector[Any]] = {
            "nodes": Reflector(api, NODES, self.ledger.nodes),
            "gpunodes": Reflector(api, GPUNODES, self.ledger.gpus),
            "gpujobs": Reflector(api, SHOWN_JOBS, self.jobs),
            "gpuquotas": Reflector(api, GPUQUOTAS, self.quotas.quotas),
            "gpucohorts": Reflector(api, GPUCOHORTS, self.quotas.cohorts),
            "gpureservations": Reflector(api, GPURESERVATIONS, self.quotas.reservations),
            "pods": Reflector(api, WATCHED_PODS, self.ledger.pods),
            "priorityclasses": Reflector(api, PRIORITY_CLASSES, self.classes),
        }
        self.watches = made
        return made

    @property
    def cluster(self) -> Cluster:
        """Nodes, with what is held of them."""
        return self.ledger.cluster

    def policy(self) -> Policy:
        """Return the extender's default placement policy."""
        return self.policies.named()

    def missing(self) -> str:
        """Return what is missing for an answer; empty: nothing."""
        return missing_of(self.watches, self._fresh_seconds)

    def require_fresh(self) -> None:
        """Refuse to answer from data that may be old.

        Raises:
            NotReady: the message says what is missing.
        """
        if missing := self.missing():
            raise NotReady(f"the cluster's state is not known: {missing}")
        self.ledger.expire()


def _changed_keys(before: Mapping[JobKey, ShownJob], now: Mapping[JobKey, ShownJob]) -> set[JobKey]:
    """Return the jobs that are not the same version."""
    versions, known = (
        {(*key, job.metadata.uid, job.metadata.resource_version) for key, job in jobs.items()}
        for jobs in (before, now)
    )
    return {(namespace, name) for namespace, name, *_ in versions ^ known}
