# SPDX-License-Identifier: Apache-2.0
"""What a GPUJob's priority is: a number of its own up to a bound, or a PriorityClass's value.

A class must have preemptionPolicy Never: its pods carry it, so that quotas with a PriorityClass
scope govern it, and kube-scheduler would evict others for single workers of a gang.
"""

import collections
import dataclasses
import time
from collections.abc import Callable

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.resources import PRIORITY_CLASSES
from gpupack_operator.decision.model import NotPlanned
from gpupack_operator.decision.reasons import JobReason

GOOD_SECONDS = 60.0
"""How long a class is not read again. Its value cannot change, but it can be deleted."""
BAD_SECONDS = 5.0
RETRY_SECONDS = 15.0
MOST_NAMES = 1000
"""How many names are remembered: anybody can ask for classes that there are not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Priority:
    """What a GPUJob is planned with.

    Attributes:
        value: higher is planned first.
        problem: why it is not planned at all, if so.
    """

    value: int
    problem: NotPlanned | None = None


class Priorities:
    """Reads PriorityClasses, and remembers them for a while.

    Args:
        api: the API server.
        most: the largest number that a GPUJob may give itself.
        clock: monotonic seconds.
    """

    def __init__(self, api: Api, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._most = most
        self._clock = clock
        self._known: collections.OrderedDict[str, tuple[float, Priority]] = (
            collections.OrderedDict()
        )

    async def of(self, spec: GpuJobSpec) -> Priority:
        """The priority of a GPUJob.

        Raises:
            KubeError: its class could not be read.
        """
        name = spec.priority_class_name
        if not name:
            return Priority(min(spec.priority, self._most))
        until, known = self._known.get(name, (0.0, None))
        if known and self._clock() < until:
            return known
        found = await self._read(name)
        seconds = BAD_SECONDS if found.problem else GOOD_SECONDS
        self._known[name] = (self._clock() + seconds, found)
        self._known.move_to_end(name)
        if len(self._known) > MOST_NAMES:
            self._known.popitem(last=False)
        return found

    async def _read(self, name: str) -> Priority:
        try:
            found = await self._api.get(PRIORITY_CLASSES, name)
        except errors.NotFound:
            message = f"spec.priorityClassName: there is no PriorityClass {name}; create it"
            return _problem(JobReason.PRIORITY_CLASS_MISSING, message)
        if found.preemption_policy != "Never":
            message = (
                f"spec.priorityClassName: pods of PriorityClass {name} evict others, and half a "
                "gang would gain nothing by it; use a class with preemptionPolicy: Never"
            )
            return _problem(JobReason.PRIORITY_CLASS_PREEMPTS, message)
        return Priority(found.value)


def _problem(reason: JobReason, message: str) -> Priority:
    return Priority(
        value=0,
        problem=NotPlanned(reason, message, retry_seconds=RETRY_SECONDS),
    )
