# SPDX-License-Identifier: Apache-2.0
"""What one pod or one worker of a GPUJob holds, with its times from API objects.

    worker   admitted ├───────────────────────────────┤ released     GPUJob.status.attempts
    its pod             bound ├────────────────────┤ ended           its condition, its containers
    counted           ├────────────────────────────────┤

A worker's places belong to its job from the admission until the attempt has ended, as in the
ledger, and to its pod for as long as that lives. All times are seconds since the epoch.
"""

import msgspec

from gpupack_cost import Holding, Part


class HeldGpu(msgspec.Struct, frozen=True, array_like=True):
    """A GPU, slice or share.

    Attributes:
        uuid: empty: unknown, where another device plugin chooses.
        milli: milli-GPU that it counts.
        model: label; empty: not known yet.
        percent, memory: as granted, in percent and MiB.
        resource: resource of the request, where the UUID is empty.
    """

    uuid: str
    milli: int
    model: str
    percent: int = 100
    memory: int = 0
    resource: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim; `key` is its identity.

    Attributes:
        job: name in answers: that of a GPUJob; for others Kind/NAME of the pod's controller.
        cohort: cohort of the namespace when the claim started.
        job_uid, attempt: GPUJob and attempt of a worker.
        pod: UID; empty: no pod was seen.
        pod_there: the API server has the pod.
        lingers: the node's agent reports that its processes still run.
        gone: when the processes of a terminating pod ended.
    """

    key: str
    namespace: str
    job: str
    cohort: str = ""
    node: str = ""
    held: tuple[HeldGpu, ...] = ()
    job_uid: str = ""
    attempt: int = 0
    pod: str = ""
    pod_there: bool = False
    lingers: bool = False
    admitted: float | None = None
    released: float | None = None
    bound: float | None = None
    ended: float | None = None
    gone: float | None = None

    @property
    def start(self) -> float:
        """The time at which it started."""
        return min(moment for moment in (self.admitted, self.bound) if moment is not None)

    @property
    def end(self) -> float | None:
        """The time at which it ended, at or after its start; None: it is open."""
        awaited = (
            self.lingers
            or (self.admitted is not None and self.released is None)
            or (self.bound is not None and self.ended is None)
        )
        if awaited:
            return None
        ends = (self.released, self.ended, self.gone)
        return max((self.start, *(moment for moment in ends if moment is not None)))

    @property
    def is_resolved(self) -> bool:
        """Whether the models of all its GPUs are known."""
        return all(each.model for each in self.held)

    def matches(self, other: "Claim") -> bool:
        """Return whether the other claim is for the same GPUs of the same node."""
        return self.node == other.node and _granted(self) == _granted(other)

    def holding(self, start: float, end: float) -> Holding:
        """Return what counts of it between two times."""
        parts: dict[str, int] = {}
        for each in self.held:
            parts[each.model] = parts.get(each.model, 0) + each.milli
        return Holding(
            tenant=self.namespace,
            cohort=self.cohort,
            job=self.job,
            parts=tuple(Part(*part) for part in sorted(parts.items())),
            start=start,
            end=end,
        )


def _granted(claim: Claim) -> list[tuple[str, int, int]]:
    """Return the granted GPUs for a comparison; MiB of GPUs without UUID are unknown."""
    return sorted((each.uuid, each.percent, each.memory if each.uuid else 0) for each in claim.held)
