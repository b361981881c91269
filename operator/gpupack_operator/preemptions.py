# SPDX-License-Identifier: Apache-2.0
"""Which attempts are to end for which GPUJobs, as these jobs' statuses say.

What stands in the status of a job that waits is the order; it is looked up by victim here.
"""

from collections import defaultdict
from collections.abc import Iterable

from gpupack_crds.kinds import GpuJob
from gpupack_operator.decision.model import Preempted
from gpupack_operator.plan_line import Key


class Preemptions:
    """By attempt, written «UID/NUMBER»."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        """GPUJobs by UID."""
        self._victims: dict[str, frozenset[str]] = {}
        """Of each beneficiary, by UID."""
        self._for: dict[str, dict[str, Preempted]] = defaultdict(dict)
        """By victim and beneficiary's UID."""

    def saw(self, job: GpuJob, *, gone: bool) -> tuple[Key, ...]:
        """A GPUJob changed; the answer is whom it stops that it did not stop before."""
        uid, key = job.metadata.uid, Key(*job.key)
        if gone:
            self._keys.pop(uid, None)
        else:
            self._keys[uid] = key
        before = self._victims.pop(uid, frozenset())
        found = {} if gone else _victims(job)
        for victim in before - found.keys():
            self._forget(victim, uid)
        for victim, preempted in found.items():
            self._for[victim][uid] = preempted
        if found:
            self._victims[uid] = frozenset(found)
        return tuple(self._keys_of(found.keys() - before))

    def of(self, job: GpuJob, attempt: int) -> Preempted | None:
        """For whom this attempt is to end; None: for nobody."""
        found = self._for.get(f"{job.metadata.uid}/{attempt}", {})
        return next((found[uid] for uid in sorted(found)), None)

    def _forget(self, victim: str, beneficiary: str) -> None:
        self._for[victim].pop(beneficiary, None)
        if not self._for[victim]:
            del self._for[victim]

    def _keys_of(self, victims: Iterable[str]) -> Iterable[Key]:
        uids = (victim.partition("/")[0] for victim in sorted(victims))
        return (self._keys[uid] for uid in uids if uid in self._keys)


def _victims(job: GpuJob) -> dict[str, Preempted]:
    """Nobody is stopped for who does not wait, or does not want to any more."""
    preemption, leaves = job.status.preemption, job.metadata.deletion_timestamp is not None
    if preemption is None or leaves or job.spec.suspend or job.status.phase != "Pending":
        return {}
    return {
        attempt: Preempted(ground=each.ground, beneficiary=job.key)
        for each in preemption.victims
        for attempt in each.attempts
    }
