# SPDX-License-Identifier: Apache-2.0
"""PriorityClasses as the watch shows them: how urgent GPUJobs are that name one."""

from collections.abc import Callable

from gpupack_crds.priority import PriorityProblem, priority_of
from gpupack_kube.objects import PriorityClass
from gpupack_scheduling.ledger.asking_job import AskingSpec


class PriorityClasses:
    """A reflector's store.

    Args:
        most: the largest number that a GPUJob may give itself.

    Attributes:
        changed: called when a class says something else, or is gone.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self.changed: Callable[[], None] = lambda: None
        self._by_name: dict[str, PriorityClass] = {}

    def replace(self, items: list[PriorityClass], /) -> None:
        """These are all."""
        self._by_name = {item.metadata.name: item for item in items}
        self.changed()

    def upsert(self, item: PriorityClass, /) -> None:
        """A class appeared or changed."""
        self._by_name[item.metadata.name] = item
        self.changed()

    def remove(self, item: PriorityClass, /) -> None:
        """A class is gone."""
        self._by_name.pop(item.metadata.name, None)
        self.changed()

    def judge(self, *, name: str | None, number: int) -> int | PriorityProblem:
        """The priority of a job that names a class or says a number, as the operator has it."""
        return priority_of(name, self._by_name.get(name)) if name else min(number, self._most)

    def priority_of(self, spec: AskingSpec) -> int | None:
        """The same; None: the class does not let it be planned."""
        found = self.judge(name=spec.priority_class_name, number=spec.priority)
        return None if isinstance(found, PriorityProblem) else found
