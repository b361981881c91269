# SPDX-License-Identifier: Apache-2.0
"""What pods may hold: rules of the outside watcher that need the pods alone."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from storm_views import Held, SeenPod

WHOLE = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """What the inventory says of one."""

    key: str
    """The model as quotas name it."""
    memory_mib: int


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """So many GPUs at the most for all these namespaces together."""

    name: str
    namespaces: frozenset[str]
    key: str
    most: int


class NoGpuTwice:
    """A whole GPU is one pod's; shares of one sum up to no more than its time and memory."""

    def __init__(self, gpus: Mapping[str, Gpu]) -> None:
        self._gpus = gpus
        self._holders: dict[str, dict[str, tuple[SeenPod, Held]]] = defaultdict(dict)

    def pod(self, before: SeenPod | None, after: SeenPod | None) -> Iterator[str]:
        """A pod changed."""
        for held in before.holds if before else ():
            self._holders[held.uuid].pop(before.uid, None)
        for held in after.holds if after else ():
            self._holders[held.uuid][after.uid] = (after, held)
            yield from self._judge(held.uuid)

    @property
    def held(self) -> dict[str, int]:
        """Held percent of each GPU."""
        return {
            uuid: sum(held.percent for _, held in holders.values())
            for uuid, holders in self._holders.items()
            if holders
        }

    @property
    def holders(self) -> list[str]:
        """Who they are, and where."""
        found = {
            f"{pod.namespace}/{pod.name} on {pod.node}"
            f"{'' if pod.deleted_by is None else ', being deleted'}"
            for holders in self._holders.values()
            for pod, _ in holders.values()
        }
        return sorted(found)

    def _judge(self, uuid: str) -> Iterator[str]:
        holders, gpu = self._holders[uuid].values(), self._gpus.get(uuid)
        who = " and ".join(sorted(f"{pod.namespace}/{pod.name}" for pod, _ in holders))
        percent = sum(held.percent for _, held in holders)
        memory = sum(held.memory_mib for _, held in holders)
        if gpu is None:
            yield f"no node has GPU {uuid}, which {who} holds"
        elif percent > WHOLE:
            yield f"GPU {uuid} is held {percent} % by {who}"
        elif memory > gpu.memory_mib:
            yield f"{memory} of {gpu.memory_mib} MiB of GPU {uuid} are held by {who}"


class WithinLimits:
    """No namespace, no cohort uses more than it is promised and may borrow."""

    def __init__(self, gpus: Mapping[str, Gpu], limits: Sequence[Limit]) -> None:
        self._gpus, self._limits = gpus, limits
        self._used: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(dict)
        """By namespace and key, of each pod."""

    def pod(self, before: SeenPod | None, after: SeenPod | None) -> Iterator[str]:
        """A pod changed."""
        for key in self._charge(before):
            self._used[before.namespace, key].pop(before.uid, None)
        for key, amount in self._charge(after).items():
            self._used[after.namespace, key][after.uid] = amount
            yield from self._judge(after.namespace, key)

    def _charge(self, pod: SeenPod | None) -> dict[str, Fraction]:
        found: dict[str, Fraction] = defaultdict(Fraction)
        for held in pod.holds if pod else ():
            if gpu := self._gpus.get(held.uuid):
                part = Fraction(held.memory_mib, gpu.memory_mib)
                found[gpu.key] += max(Fraction(held.percent, WHOLE), part)
        return found

    def _judge(self, namespace: str, key: str) -> Iterator[str]:
        for limit in self._limits:
            if key == limit.key and namespace in limit.namespaces:
                used = sum(sum(self._used[each, key].values()) for each in limit.namespaces)
                if used > limit.most:
                    yield f"{limit.name} uses {float(used)} of {limit.most} {key}"


class OneAttemptAtATime:
    """No two attempts of a GPUJob have pods that may run.

    A deleted pod on a node that has lost power cannot run.
    """

    def __init__(self) -> None:
        self._live: dict[str, dict[str, SeenPod]] = defaultdict(dict)
        self._off: dict[str, float] = {}

    def lost_power(self, node: str, at: float) -> None:
        """A node is off."""
        self._off[node] = at

    def pod(self, before: SeenPod | None, after: SeenPod | None, at: float) -> Iterator[str]:
        """A pod changed."""
        if before and before.job_uid:
            self._live[before.job_uid].pop(before.uid, None)
        if after and after.job_uid and after.node and not after.ended:
            live = self._live[after.job_uid]
            live[after.uid] = after
            numbers = {each.attempt for each in live.values() if self._may_run(each)}
            if len(numbers) > 1:
                names = ", ".join(sorted(each.name for each in live.values()))
                yield f"attempts {sorted(numbers)} of one GPUJob run: {after.namespace}/{names}"

    def _may_run(self, pod: SeenPod) -> bool:
        is_deleted = pod.deleted_by is not None
        return not (is_deleted and self._off.get(pod.node, -math.inf) >= pod.created)
