# SPDX-License-Identifier: Apache-2.0
"""Questions of `what-if`, and what then became of the job that was asked about."""

import dataclasses
import random
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import httpx
from followed import Followed
from harness import Kube
from manifests import Judged, Manifest, Share

from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import by_worker

MAX_JOBS = 8
"""In the namespace at a time; together they ask for more GPUs than there are."""
HELD_SECONDS = 3600
NEVER = "can never start"
CALM_SECONDS = 0.8
SEARCH_SECONDS = 6.0
"""The extender searches victims for jobs of one request class, and estimates starts, every 5 s."""
LEARNING_SECONDS = 10.0
"""Until extender and API both decide by a newly learned mix of requests."""
PASSING = {
    "",
    "AdmissionPending",
    "Queued",
    "Restarting",
    "SchedulerUnavailable",
    "PreemptionPending",
    "WorkersTerminating",
}
"""Reasons of a pending job whose state is about to change."""
SHARES = (Share(30, 8192), Share(50, 16_384))


class Place(NamedTuple):
    """The place of one worker: its node, and UUID and percent of each device."""

    node: str
    devices: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The predicted or the actual outcome of a job.

    Attributes:
        outcome: Starts, Waits or Never.
        reason: why it does not start; empty where it does.
        places: of its workers.
        position: among the pending jobs.
        stopped: jobs that are preempted for it.
    """

    outcome: str
    reason: str = ""
    places: tuple[Place, ...] = ()
    position: int | None = None
    stopped: frozenset[str] = frozenset()


def drawn(judged: Judged, name: str, chance: random.Random) -> Manifest:
    """Return a job that holds what it gets; one of twenty is too large for the cluster."""
    if chance.random() < 1 / 20:
        size: dict[str, Any] = {"workers": 40, "gpus": 8}
    elif chance.random() < 1 / 4:
        size = {"workers": chance.choice((1, 1, 2, 3)), "share": chance.choice(SHARES)}
    else:
        size = {"workers": chance.choice((1, 1, 1, 2)), "gpus": chance.choice((2, 4, 4, 8, 8))}
    return judged.job(name, seconds=HELD_SECONDS, priority=chance.choice((0, 0, -10)), **size)


@dataclasses.dataclass
class Asker:
    """A tenant with an empty namespace.

    Attributes:
        api: the REST API, called with the tenant's token.
        followed: the tenant's namespace.
        late: first actual outcomes that differed from the prediction.
        queues: the queue at the last what-if, and when its answer was judged.
    """

    kube: Kube
    api: httpx.Client
    followed: Followed
    late: list[Outcome] = dataclasses.field(default_factory=list)
    queues: list[str] = dataclasses.field(default_factory=list)
    _learned: str = ""

    def thin_out(self, chance: random.Random) -> None:
        """End some jobs, so that others are admitted."""
        names = sorted(self.followed.jobs())
        fewest = max(len(names) - MAX_JOBS, 0)
        ending = chance.sample(names, max(fewest, min(len(names), chance.choice((0, 0, 1, 2)))))
        if ending:
            self.kube.delete("gpujob", *ending, "--wait=false")
        self._at_rest(but=ending)

    def predict(self, job: Manifest) -> Outcome:
        """Return the answer of `what-if`."""
        self.queues = [self._queue()]
        body = {"namespace": self.kube.namespace, "job": job["spec"]}
        answer = self.api.post("what-if", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["preempts_hidden"] == 0, found
        return Outcome(
            found["outcome"],
            "" if found["workers"] else found["reason"],
            tuple(
                Place(each["node"], tuple((d["uuid"], d["percent"]) for d in each["devices"]))
                for each in found["workers"]
            ),
            found["position"],
            frozenset(each["name"] for each in found["preempts"]),
        )

    def submit(self, job: Manifest, expected: Outcome) -> Outcome:
        """Submit the job and return its outcome, at the latest after the next search."""
        name, before = job["metadata"]["name"], self._attempts()
        self.kube.submit(job)
        self._at_rest(with_=name)
        found = self._outcome(name, before)
        self.queues.append(self._queue())
        if found == expected:
            return found
        self.late.append(found)
        self._at_rest(with_=name, calm=SEARCH_SECONDS)
        return self._outcome(name, before)

    def withdraw(self, job: Manifest) -> None:
        """Delete the job and wait until searches and reservations use the current state."""
        name = job["metadata"]["name"]
        self.kube.delete("gpujob", name, "--wait=false")
        self._at_rest(but=[name], calm=SEARCH_SECONDS)

    def said(self) -> str:
        """Return the queue before and after the last question, in words."""
        return f"the queue was {' and then '.join(self.queues)}"

    def learned(self) -> str:
        """Return the demand forecast; every component reads a new one at its own time."""
        found = self.kube.insist(
            "get",
            "gpucohort",
            "cluster",
            "--ignore-not-found",
            "-o",
            "jsonpath={.status.demandForecast}",
        )
        if found != self._learned:
            time.sleep(LEARNING_SECONDS)
        self._learned = found
        return found

    def _outcome(self, name: str, before: Mapping[str, int | None]) -> Outcome:
        """Return the outcome of a job, given the attempts of the others before."""
        jobs = self.followed.jobs()
        status = jobs[name].status
        if status.phase == "Running":
            ended = {other for other, number in before.items() if _attempt(jobs[other]) != number}
            places = tuple(
                Place(each.node, tuple((d.uuid, d.percent) for d in each.devices))
                for each in by_worker(status.placement)
            )
            return Outcome("Starts", places=places, stopped=frozenset(ended))
        explained = self.api.get(f"jobs/{self.kube.namespace}/{name}/explain", timeout=30).json()
        outcome = "Never" if NEVER in status.message else "Waits"
        return Outcome(outcome, status.reason, position=explained["position"])

    def _at_rest(
        self, *, with_: str = "", but: Collection[str] = (), calm: float = CALM_SECONDS
    ) -> None:
        """Wait until each job runs or has a reason to wait, and nothing ends or changes."""

        def rests() -> bool:
            jobs, pods = self.followed.jobs(), self.followed.pods()
            is_there = with_ in jobs if with_ else not jobs.keys() & set(but)
            ending = any(pod.metadata.deletion_timestamp for pod in pods)
            ends = ending or self.followed.lingering()
            return is_there and not ends and all(map(_rests, jobs.values()))

        self.followed.wait(rests, seconds=90, calm=calm, what="the queue is at rest")

    def _queue(self) -> str:
        """Return pending and running jobs."""
        waiting = self.api.get("queue", timeout=30).json()["waiting"]
        waits = [f"{each['name']} ({each['priority']}, {each['reason']})" for each in waiting]
        return f"waiting {', '.join(waits)}; running {', '.join(sorted(self._attempts()))}"

    def _attempts(self) -> dict[str, int | None]:
        """Return the attempts of running jobs."""
        jobs = self.followed.jobs().items()
        return {name: _attempt(job) for name, job in jobs if job.status.phase == "Running"}


def _attempt(job: GpuJob) -> int | None:
    return job.status.attempt if job.status.phase == "Running" else None


def _rests(job: GpuJob) -> bool:
    """One that is Admitted is on its way, and so is one that waits for its turn or for others."""
    status = job.status
    if job.metadata.deletion_timestamp is not None:
        return False
    return status.phase == "Running" or (status.phase == "Pending" and status.reason not in PASSING)
