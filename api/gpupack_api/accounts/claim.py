# SPDX-License-Identifier: Apache-2.0
"""What one pod or one worker of a GPUJob holds, and since when: moments that API objects tell.

    worker   admitted ├───────────────────────────────┤ released     GPUJob.status.attempts
    its pod             bound ├────────────────────┤ ended           its condition, its containers
    counted           ├────────────────────────────────┤

A worker's places are its job's from the admission on and until the attempt has ended, as in the
ledger, and its pod's for as long as that lives. All moments are seconds since the epoch.
"""

import msgspec

from gpupack_core.accounting import Holding, Part


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A GPU, slice or share.

    Attributes:
        uuid: empty: which one is not known, where another device plugin chooses.
        milli: milli-GPU that it counts.
        model: label; empty: it is not known yet.
        percent, memory: as it was granted, percent and MiB.
        resource: by which it was asked for, where the UUID is empty.
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
        job: as it is shown: name of a GPUJob; of others Kind/NAME of who made the pod.
        cohort: of the namespace when the claim began.
        job_uid, attempt: of a worker.
        pod: UID; empty: none was seen.
        pod_there: the API knows it.
        lingers: the node's agent says that its processes run on.
        gone: when those of a pod that lingered were gone.
    """

    key: str
    namespace: str
    job: str
    cohort: str = ""
    node: str = ""
    held: tuple[Held, ...] = ()
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
        """When it began."""
        return min(moment for moment in (self.admitted, self.bound) if moment is not None)

    @property
    def end(self) -> float | None:
        """When it ended, which is not before it began; None: it lasts."""
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
        """Whether the model of all that it holds is known."""
        return all(each.model for each in self.held)

    def matches(self, other: "Claim") -> bool:
        """Whether the other is about the same GPUs of the same node."""
        return self.node == other.node and _granted(self) == _granted(other)

    def holding(self, start: float, end: float) -> Holding:
        """What is counted of it between two moments."""
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
    """MiB of GPUs that nobody chose are not known."""
    return sorted((each.uuid, each.percent, each.memory if each.uuid else 0) for each in claim.held)
