# SPDX-License-Identifier: Apache-2.0
"""Judges what the API shows of a storm, event by event. Pure: time is an input, too.

    what must hold at all times                          rule
    no GPU twice, shares within time and memory          pod_rules.NoGpuTwice
    within what quotas and cohorts allow                 pod_rules.WithinLimits
    one attempt of a GPUJob at a time                    pod_rules.OneAttemptAtATime
    all workers of an attempt or none                    job_rules.WholeGangs
    preemption: named before, by right, not in turn      preemption_rules.FairPreemptions
    nothing is lost, and nothing runs too often          job_rules.NothingLost
    out of service: no admissions, drains match places   service_rules.OutOfService

Events of one kind come in the order in which they happened. Those of pods and those of GPUJobs come
by two watches, so no rule asks which of two happened first where they are of different kinds.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from job_rules import NothingLost, WholeGangs
from pod_rules import Gpu, Limit, NoGpuTwice, OneAttemptAtATime, WithinLimits
from preemption_rules import FairPreemptions
from service_rules import OutOfService
from storm_views import SeenJob, SeenPod


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What the storm is judged by.

    Attributes:
        gpus: the inventory, by UUID.
        limits: what quotas and cohorts allow.
        deletable: keys (NAMESPACE/NAME) of the GPUJobs that the storm deletes.
        slack_seconds: how late an operator that is killed may be.
    """

    gpus: Mapping[str, Gpu]
    limits: Sequence[Limit] = ()
    deletable: frozenset[str] = frozenset()
    slack_seconds: float = 0.0


class Judge:
    """Collects what is wrong."""

    def __init__(self, terms: Terms) -> None:
        self.violations: dict[str, float] = {}
        """What is wrong, each once, and when it was seen first."""
        self.pods: dict[str, SeenPod] = {}
        self.jobs: dict[str, SeenJob] = {}
        self._gone: dict[str, SeenJob] = {}
        self._taken: set[str] = set()
        """Nodes that were there."""
        self.gpus = NoGpuTwice(terms.gpus)
        self.preemptions = FairPreemptions()
        self._limits = WithinLimits(terms.gpus, terms.limits)
        self._attempts = OneAttemptAtATime()
        self._gangs = WholeGangs(slack_seconds=terms.slack_seconds)
        self._lives = NothingLost(terms.deletable)
        self.service = OutOfService(slack_seconds=terms.slack_seconds)

    def pod(self, pod: SeenPod, at: float, *, gone: bool = False) -> None:
        """A pod changed."""
        before, after = self.pods.pop(pod.uid, None), None if gone else pod
        self._gangs.pod(after)
        if after and after.node in self._taken:
            after = dataclasses.replace(after, node="")
        if after:
            self.pods[pod.uid] = after
        self._note(self.gpus.pod(before, after), at)
        self._note(self._limits.pod(before, after), at)
        self._note(self._attempts.pod(before, after, at), at)
        self.preemptions.pod(pod)

    def job(self, job: SeenJob, at: float, *, gone: bool = False, blind: bool = False) -> None:
        """A GPUJob changed; `blind`: what became of it since it was last seen is not known."""
        before = self.jobs.pop(job.uid, None)
        if gone:
            self._gone[job.uid] = job
            self._note(self._lives.job(before or job, None), at)
            return
        self.jobs[job.uid] = job
        self._note(self._lives.job(before, job), at)
        self._note(self._gangs.job(job), at)
        self._note(self.service.job(job, at), at)
        known = self._gone | self.jobs
        self._note(self.preemptions.job(job, known, at, blind=blind), at)

    def lost_power(self, node: str, at: float) -> None:
        """A node is off: what should be gone there cannot run."""
        self._attempts.lost_power(node, at)

    def taken_away(self, node: str, at: float) -> None:
        """A node is there no more, as when an autoscaler has ended it: nothing runs or holds there.

        Its pods are deleted by Kubernetes after a while.
        """
        self._taken.add(node)
        for pod in [pod for pod in self.pods.values() if pod.node == node]:
            self.pod(pod, at)

    def there(self, node: str) -> None:
        """A node is there."""
        self._taken.discard(node)

    def tick(self, at: float) -> None:
        """Time passed."""
        self._note(self._gangs.tick(self.jobs, at), at)
        self._note(self.preemptions.tick(at), at)

    def _note(self, found: Iterable[str], at: float) -> None:
        for text in found:
            self.violations.setdefault(text, at)


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """How a GPUJob ends by its spec.

    Attributes:
        phase: Succeeded or Failed.
        reason: of its status.
        restarts: that it has had by then.
    """

    phase: str
    reason: str
    restarts: int = 0


def unexpected_ends(jobs: Iterable[SeenJob], expected: Mapping[str, End | None]) -> list[str]:
    """List the jobs that did not end as expected, by key; None: the job is to be deleted."""
    by_key = {job.key: job for job in jobs}
    found = [f"{key} is there still" for key, end in expected.items() if not end and key in by_key]
    for key, end in expected.items():
        if end is None:
            continue
        job = by_key.get(key)
        seen = End(job.phase, job.reason, job.restarts) if job else None
        if seen != end:
            found.append(f"{key} ended as {seen}, and should as {end}")
    return sorted(found)
