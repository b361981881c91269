# SPDX-License-Identifier: Apache-2.0
"""PriorityClasses of the watch: the priority of GPUJobs that name one."""

from collections.abc import Callable

from gpupack_crds.priority import PriorityProblem, priority_of
from gpupack_kubeclient.objects import PriorityClass
from gpupack_scheduler.ledger.pending_job import PendingSpec


class PriorityClasses:
    """The reflector's store of PriorityClasses.

    Args:
        max_priority: the largest number that a GPUJob may set itself.

    Attributes:
        changed: called when a class changes or is removed.
    """

    def __init__(self, *, max_priority: int) -> None:
        self._max_priority = max_priority
        self.changed: Callable[[], None] = lambda: None
        self._by_name: dict[str, PriorityClass] = {}

    def replace(self, items: list[PriorityClass], /) -> None:
        """Replace all classes."""
        self._by_name = {item.metadata.name: item for item in items}
        self.changed()

    def upsert(self, item: PriorityClass, /) -> None:
        """Add or update a class."""
        self._by_name[item.metadata.name] = item
        self.changed()

    def remove(self, item: PriorityClass, /) -> None:
        """Remove a class."""
        self._by_name.pop(item.metadata.name, None)
        self.changed()

    def resolve(self, *, name: str | None, number: int) -> int | PriorityProblem:
        """Return the priority of a job by its class or number, as the operator computes it."""
        return (
            priority_of(name, self._by_name.get(name)) if name else min(number, self._max_priority)
        )

    def priority_of(self, spec: PendingSpec) -> int | None:
        """Return the priority of a spec; None: its class does not allow a plan."""
        found = self.resolve(name=spec.priority_class_name, number=spec.priority)
        return None if isinstance(found, PriorityProblem) else found
