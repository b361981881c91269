# SPDX-License-Identifier: Apache-2.0
"""How much of the queue one namespace may take: memory for what it asks, time for looking at it.

Jobs that ask for the same cost nothing more each. Those that differ are looked at one by one, and
what a job says of nodes is kept for as long as it waits. Who is beyond these bounds waits outside:
he is not in the queue, and asks again.
"""

from collections import Counter
from typing import Final

import gpupack_core as core

MAX_KINDS: Final = 64
"""Different requests of one namespace that wait: each may be planned anew at each end."""

MAX_VALUES: Final = 1 << 16
"""Tolerations, and values that labels are compared with, in those of one namespace; each takes
some hundred bytes."""

MAX_JOBS: Final = 20_000
"""Of one namespace."""

MAX_OUTSIDE: Final = 1_000
"""Of one namespace are called when another has left the queue; the others ask by themselves."""


class Capacity:
    """What waits, by namespace."""

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[core.Gang]] = {}
        self._outside: dict[str, dict[str, None]] = {}
        """Names of GPUJobs that were refused, in order."""

    def obstacle(self, namespace: str, gang: core.Gang) -> str:
        """Why another cannot wait in the queue; empty: it can."""
        kinds = self._kinds.get(namespace, Counter())
        if kinds.total() >= MAX_JOBS:
            return f"{MAX_JOBS} jobs of its namespace wait, and no more stand in the queue"
        if gang in kinds:
            return ""
        if len(kinds) >= MAX_KINDS:
            return (
                f"jobs of its namespace that wait ask for {MAX_KINDS} different things, and no "
                "more stand in the queue: let them ask for the same CPU, memory and nodes"
            )
        if sum(map(values, kinds)) + values(gang) > MAX_VALUES:
            return (
                f"jobs of its namespace that wait name more than {MAX_VALUES} labels and "
                "tolerations, and no more stand in the queue: narrow their nodes down by fewer"
            )
        return ""

    def refuse(self, namespace: str, name: str) -> None:
        """It waits outside."""
        outside = self._outside.setdefault(namespace, {})
        if len(outside) < MAX_OUTSIDE:
            outside[name] = None

    def next_outside(self, namespace: str) -> str | None:
        """Who may try again now that another has left the queue."""
        outside = self._outside.get(namespace)
        if not outside:
            return None
        name = next(iter(outside))
        self.comes_in(namespace, name)
        return name

    def comes_in(self, namespace: str, name: str) -> None:
        """It is outside no longer."""
        outside = self._outside.get(namespace, {})
        outside.pop(name, None)
        if not outside:
            self._outside.pop(namespace, None)

    def add(self, namespace: str, gang: core.Gang) -> None:
        """It waits."""
        self._kinds.setdefault(namespace, Counter())[gang] += 1

    def remove(self, namespace: str, gang: core.Gang) -> None:
        """It waits no longer."""
        kinds = self._kinds[namespace]
        kinds[gang] -= 1
        if not kinds[gang]:
            del kinds[gang]
        if not kinds:
            del self._kinds[namespace]


def values(gang: core.Gang) -> int:
    """How many tolerations and values of labels the gang names."""
    selector, tolerations = gang.request.selector, len(gang.request.tolerations)
    return tolerations + (selector.requirements if selector is not None else 0)
