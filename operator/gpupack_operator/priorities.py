# SPDX-License-Identifier: Apache-2.0
"""Priorities of GPUJobs, from the PriorityClasses that they name (gpupack_crds.priority)."""

import collections
import dataclasses
import time
from collections.abc import Callable

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.priority import PriorityProblem, priority_of
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import PRIORITY_CLASSES
from gpupack_operator.decision.model import NoPlan
from gpupack_operator.decision.reasons import JobReason

FOUND_SECONDS = 60.0
"""How long a class is not read again. Its value cannot change, but it can be deleted."""
PROBLEM_SECONDS = 5.0
RETRY_SECONDS = 15.0
MAX_NAMES = 1000
"""Limit of remembered names: any user can name classes that do not exist."""


@dataclasses.dataclass(frozen=True, slots=True)
class Priority:
    """Priority with which a GPUJob is planned.

    Attributes:
        value: the priority; a higher value is planned first.
        problem: why it is not planned at all, if it is not.
    """

    value: int
    problem: NoPlan | None = None


class Priorities:
    """Reader of PriorityClasses that remembers them for a while.

    Args:
        api: the API server.
        max_priority: the largest priority that a GPUJob may set itself.
        clock: monotonic seconds.
    """

    def __init__(
        self, api: Api, *, max_priority: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._max_priority = max_priority
        self._clock = clock
        self._known: collections.OrderedDict[str, tuple[float, Priority]] = (
            collections.OrderedDict()
        )

    async def of(self, spec: GpuJobSpec) -> Priority:
        """Return the priority of a GPUJob.

        Raises:
            KubeError: its class could not be read.
        """
        name = spec.priority_class_name
        if not name:
            return Priority(min(spec.priority, self._max_priority))
        until, known = self._known.get(name, (0.0, None))
        if known and self._clock() < until:
            return known
        found = await self._read(name)
        seconds = PROBLEM_SECONDS if found.problem else FOUND_SECONDS
        self._known[name] = (self._clock() + seconds, found)
        self._known.move_to_end(name)
        if len(self._known) > MAX_NAMES:
            self._known.popitem(last=False)
        return found

    async def _read(self, name: str) -> Priority:
        try:
            found = await self._api.get(PRIORITY_CLASSES, name)
        except errors.NotFound:
            return _judged(priority_of(name, None))
        return _judged(priority_of(name, found))


def _judged(found: int | PriorityProblem) -> Priority:
    if not isinstance(found, PriorityProblem):
        return Priority(found)
    reason = JobReason(found.reason)
    return Priority(0, NoPlan(reason, found.message, retry_seconds=RETRY_SECONDS))
