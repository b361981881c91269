# SPDX-License-Identifier: Apache-2.0
"""Limits on what one namespace may have in the queue: memory for its requests, time for plans.

Jobs with equal requests cost nothing more each. Different requests are planned one by one, and the
rules about nodes of a job are kept for as long as it waits. A job beyond these limits is refused:
it is not in the queue, and is submitted again later.
"""

from collections import Counter
from typing import Final

from gpupack_placement import Gang

MAX_KINDS: Final = 64
"""Maximum of different pending requests of one namespace. Each may be planned again at each end of
a job."""

MAX_VALUES: Final = 1 << 16
"""Maximum of tolerations and label values in the pending requests of one namespace; each takes some
hundred bytes."""

MAX_JOBS: Final = 20_000
"""Maximum of pending jobs of one namespace."""

MAX_OUTSIDE: Final = 1_000
"""Maximum of refused jobs of one namespace that are notified when another has left the queue; the
others try again by themselves."""


class QueueCapacity:
    """The pending requests by namespace."""

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[tuple[Gang, int]]] = {}
        """The requests by namespace, each with the number of requests that it may become."""
        self._outside: dict[str, dict[str, None]] = {}
        """Names of refused GPUJobs by namespace, in order."""

    def obstacle(self, namespace: str, gang: Gang, number: int) -> str:
        """Return why another job cannot wait in the queue; empty if it can.

        `number`: of different requests that the job may make one after the other.
        """
        kinds = self._kinds.get(namespace, Counter())
        if kinds.total() >= MAX_JOBS:
            return f"{MAX_JOBS} jobs of its namespace wait, and no more stand in the queue"
        if (gang, number) in kinds:
            return ""
        if number + sum(each for _, each in kinds) > MAX_KINDS:
            return (
                f"jobs of its namespace that wait ask for {MAX_KINDS} different things, and no "
                "more stand in the queue: let them ask for the same CPU, memory and nodes, or for "
                "fewer models in order of preference"
            )
        if sum(values(each) for each, _ in kinds) + values(gang) > MAX_VALUES:
            return (
                f"jobs of its namespace that wait name more than {MAX_VALUES} labels and "
                "tolerations, and no more stand in the queue: narrow their nodes down by fewer"
            )
        return ""

    def refuse(self, namespace: str, name: str) -> None:
        """Record a refused job."""
        outside = self._outside.setdefault(namespace, {})
        if len(outside) < MAX_OUTSIDE:
            outside[name] = None

    def next_outside(self, namespace: str) -> str | None:
        """Return a refused job that may try again now that another has left the queue."""
        outside = self._outside.get(namespace)
        if not outside:
            return None
        name = next(iter(outside))
        self.remove_refused(namespace, name)
        return name

    def remove_refused(self, namespace: str, name: str) -> None:
        """Remove a job from the refused ones."""
        outside = self._outside.get(namespace, {})
        outside.pop(name, None)
        if not outside:
            self._outside.pop(namespace, None)

    def add(self, namespace: str, gang: Gang, number: int) -> None:
        """Add a pending job."""
        self._kinds.setdefault(namespace, Counter())[gang, number] += 1

    def remove(self, namespace: str, gang: Gang, number: int) -> None:
        """Remove a pending job."""
        kinds, kind = self._kinds[namespace], (gang, number)
        kinds[kind] -= 1
        if not kinds[kind]:
            del kinds[kind]
        if not kinds:
            del self._kinds[namespace]


def values(gang: Gang) -> int:
    """Return the number of tolerations and label values of a gang."""
    selector, tolerations = gang.request.selector, len(gang.request.tolerations)
    return tolerations + (selector.requirements if selector is not None else 0)
