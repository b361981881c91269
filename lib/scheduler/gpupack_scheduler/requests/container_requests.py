# SPDX-License-Identifier: Apache-2.0
"""The requests of a pod and its containers, in its spec and as the kubelet has applied them."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Final

from gpupack_kubeclient import objects

Quantity = str | int | float
Quantities = Mapping[str, Quantity]

_OF_A_POD: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


@dataclasses.dataclass(frozen=True)
class ContainerRequests:
    """The requests of a pod; `status` is None for a pod that no kubelet has seen."""

    spec: objects.PodSpec
    status: objects.PodStatus | None = None

    def of(self, container: objects.Container) -> tuple[Quantities, ...]:
        """Return the requests of a container; the largest of them counts."""
        resources = container.resources
        wanted = {**resources.limits, **resources.requests}
        status = self._statuses.get(container.name)
        reported = _reported(status.allocated_resources, status.resources) if status else ()
        if not reported:
            return (wanted,)
        return reported if self._is_infeasible else (wanted, *reported)

    def pod_level(self) -> dict[str, Quantity]:
        """Return the pod-level requests that the containers do not determine."""
        named = {*self.spec.resources.requests, *self.spec.resources.limits}
        shared = (name for name in named if name in _OF_A_POD or name.startswith(_HUGE_PAGES))
        found = {name: self._of_the_whole(name) for name in shared}
        return {name: amount for name, amount in found.items() if amount is not None}

    def reported_pod_level(self) -> tuple[Quantities, ...]:
        """Return the pod-level amounts that the kubelet reports, overhead included."""
        if self.status is None:
            return ()
        return _reported(self.status.allocated_resources, self.status.resources)

    @property
    def counts_spec(self) -> bool:
        """Tell whether the amounts in the spec count although the kubelet reports its own."""
        return not self._is_infeasible

    @functools.cached_property
    def _statuses(self) -> Mapping[str, objects.ContainerStatus]:
        if self.status is None:
            return {}
        reported = (*self.status.init_container_statuses, *self.status.container_statuses)
        return {each.name: each for each in reported}

    @functools.cached_property
    def _is_infeasible(self) -> bool:
        return self.status is not None and self.status.resize_is_infeasible

    def _of_the_whole(self, name: str) -> Quantity | None:
        limit = self.spec.resources.limits.get(name)
        containers = (*self.spec.containers, *self.spec.init_containers)
        if limit is not None and any(_names(container, name) for container in containers):
            limit = None
        return self.spec.resources.requests.get(name, limit)


def _reported(allocated: Quantities, actual: objects.Resources | None) -> tuple[Quantities, ...]:
    return tuple(each for each in (allocated, actual.requests if actual else {}) if each)


def _names(container: objects.Container, name: str) -> bool:
    return name in container.resources.requests or name in container.resources.limits
