# SPDX-License-Identifier: Apache-2.0
"""Facts about the workers of one attempt, each a container of a pod."""

import dataclasses
import datetime as dt
from collections.abc import Collection, Iterable

from msgspec import structs

from gpupack_crds import names
from gpupack_kubeclient.objects import (
    Condition,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
    Pod,
)
from gpupack_operator.decision import container_ends
from gpupack_operator.manifests import owner

GIVEN_UP = "DeletionByTaintManager"
"""Kubernetes' reason if a node was not ready or unreachable for longer than the pod tolerates."""

STARTED_PHASES = {"Running", "Succeeded"}


@dataclasses.dataclass(frozen=True, slots=True)
class FailedContainer:
    """Container that ended with an error.

    Attributes:
        container: the container's name.
        state: exit code, reason and message.
    """

    container: str
    state: ContainerTerminated


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """One worker of an attempt, with its properties.

    A worker ends with the container that has its GPUs: other containers (a log shipper, a proxy
    that admission has added) may continue, and are stopped when the attempt has ended. Containers
    of other workers in its pod are not its own: each of them is a worker by itself.

    Attributes:
        pod: the pod as the API server shows it.
        container: the container that has the GPUs; empty: the one that the template names.
        number: the worker's index; None: the pod's label contains it.
        peers: names of the containers of other workers in the pod.
    """

    pod: Pod
    container: str = ""
    number: int | None = None
    peers: frozenset[str] = frozenset()

    @property
    def index(self) -> int:
        """Index of the worker; a pod with one worker has it in a label."""
        return owner.index_of(self.pod) if self.number is None else self.number

    @property
    def main_container(self) -> str:
        """Name of the worker's container; a pod's only container keeps its own name."""
        if self.container:
            return self.container
        found = [container.name for container in self.pod.spec.containers]
        named = names.WORKER_CONTAINER in found or not found
        return names.WORKER_CONTAINER if named else found[0]

    @property
    def exited_zero(self) -> bool:
        """Whether the worker's container ended with exit code 0, for whatever reason."""
        state = self._terminated
        return self.pod.status.phase == "Succeeded" if state is None else state.exit_code == 0

    @property
    def succeeded(self) -> bool:
        """Whether the worker's container ended by itself, with exit code 0."""
        return self.exited_zero and isinstance(self.end, container_ends.EndedByItself)

    @property
    def has_ended(self) -> bool:
        """Whether the worker's container has ended."""
        return self._terminated is not None or self.pod.finished

    @property
    def end(self) -> container_ends.End:
        """How the worker's container ended, if it has."""
        return container_ends.classify_end(self.pod, self._terminated)

    @property
    def started(self) -> bool:
        """Whether its containers run or ran; those of a pod that its kubelet rejected never did.

        In a shared pod only the worker's own container counts: the others may start sooner.
        """
        if self.peers:
            own = self._own
            return own is not None and bool(own.state.running or own.state.terminated)
        ran = any(found.state.terminated for found in self.pod.status.container_statuses)
        return ran or self.pod.status.phase in STARTED_PHASES

    @property
    def pod_as_planned(self) -> Pod:
        """Its pod with the container names of a pod with one worker, as it was planned."""
        if self.number is None:
            return self.pod
        ours = self.peers | {self.main_container}
        containers = tuple(
            structs.replace(each, name=each.name.rpartition("-")[0]) if each.name in ours else each
            for each in self.pod.spec.containers
        )
        return structs.replace(self.pod, spec=structs.replace(self.pod.spec, containers=containers))

    @property
    def pod_failed(self) -> bool:
        """Whether its pod failed, and not only because of another worker in it."""
        if self.pod.status.phase != "Failed":
            return False
        states = [s.state.terminated for s in self._all_statuses() if s.name in self.peers]
        peer_failed = any(state is not None and state.exit_code != 0 for state in states)
        return self._terminated is None or self.exit is not None or not peer_failed

    @property
    def ended_at(self) -> dt.datetime | None:
        """Time at which the worker's container ended.

        None means that it may run, or that the time is not known.
        """
        return self._terminated.finished_at if self._terminated else None

    @property
    def seen_by_kubelet(self) -> bool:
        """Whether its kubelet has reported anything: the first report lists the containers."""
        return bool(self._all_statuses()) or self.pod.status.phase != "Pending"

    @property
    def bound(self) -> bool:
        """Whether its pod has a node."""
        return bool(self.pod.spec.node_name)

    @property
    def refused(self) -> bool:
        """Whether kube-scheduler has found none of its pod's possible nodes suitable."""
        scheduled = self.condition("PodScheduled")
        return not self.bound and scheduled is not None and scheduled.reason == "Unschedulable"

    @property
    def bound_at(self) -> dt.datetime | None:
        """Time at which its pod was bound."""
        scheduled = self.condition("PodScheduled")
        return scheduled.last_transition_time if scheduled and self.bound else None

    @property
    def exit(self) -> FailedContainer | None:
        """Container that failed: the worker's first, then any other one that ends finally.

        A sidecar does not count: its kubelet restarts it.
        """
        failed = [
            FailedContainer(container=status.name, state=status.state.terminated)
            for status in self._statuses()
            if status.state.terminated
            and status.state.terminated.exit_code != 0
            and status.name not in self._sidecars()
        ]
        return min(failed, key=lambda found: found.container != self.main_container, default=None)

    @property
    def waiting(self) -> tuple[ContainerWaiting, ...]:
        """Reasons why containers do not run yet, even if they only wait for other containers."""
        found = (status.state.waiting for status in self._statuses())
        return tuple(state for state in found if state)

    @property
    def startable_at(self) -> dt.datetime | None:
        """Time from which the waiting containers could have started."""
        ended = (found.state.terminated for found in self.pod.status.init_container_statuses)
        ends = [state.finished_at for state in ended if state and state.finished_at]
        return max([self.bound_at, *ends]) if self.bound_at else None

    @property
    def result(self) -> str:
        """Termination message of the worker's container."""
        return self._terminated.message if self._terminated else ""

    def condition(self, kind: str) -> Condition | None:
        """Return a condition of the pod."""
        return next((found for found in self.pod.status.conditions if found.type == kind), None)

    @property
    def _own(self) -> ContainerStatus | None:
        found = self.pod.status.container_statuses
        return next((each for each in found if each.name == self.main_container), None)

    @property
    def _terminated(self) -> ContainerTerminated | None:
        return self._own.state.terminated if self._own else None

    def _sidecars(self) -> frozenset[str]:
        init = self.pod.spec.init_containers
        return frozenset(found.name for found in init if found.restart_policy == "Always")

    def _statuses(self) -> tuple[ContainerStatus, ...]:
        """Return the statuses of all containers that are not another worker's."""
        return tuple(each for each in self._all_statuses() if each.name not in self.peers)

    def _all_statuses(self) -> tuple[ContainerStatus, ...]:
        return self.pod.status.container_statuses + self.pod.status.init_container_statuses


def has_terminated_container(pod: Pod) -> bool:
    """Tell whether a container of the pod has ended, so that its log is worth keeping."""
    return any(each.state.terminated for each in pod.status.container_statuses)


def may_run(pod: Pod, silent: Collection[str]) -> bool:
    """Tell whether a pod that should be gone may still run something.

    A silent node does not know of the deletion, so it is useless to wait for the grace period
    there.

    Args:
        pod: the pod.
        silent: nodes that have reported nothing for a while.
    """
    is_deleted = pod.metadata.deletion_timestamp is not None
    return not pod.finished and not (is_deleted and pod.spec.node_name in {"", *silent})


def is_given_up(pod: Pod) -> bool:
    """Tell whether Kubernetes deletes the pod because its node does not answer."""
    by = None if pod.finished else container_ends.interruption(pod)
    return by is not None and by.reason == GIVEN_UP


def is_overdue(pod: Pod, now: dt.datetime) -> bool:
    """Tell whether a deleted pod is past its grace period: its node does not end it."""
    grace_ends = pod.metadata.deletion_timestamp
    return not pod.finished and grace_ends is not None and now >= grace_ends


def by_index(workers: Iterable[Worker]) -> dict[int, Worker]:
    """Return one pod for each index, in order; a succeeded one is preferred to its duplicate."""
    ordered = sorted(workers, key=lambda worker: (worker.index, worker.succeeded))
    return {worker.index: worker for worker in ordered if worker.index >= 0}
