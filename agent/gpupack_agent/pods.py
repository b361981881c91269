# SPDX-License-Identifier: Apache-2.0
"""The pods of this node that concern the agent, kept by a watch."""

import dataclasses
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from gpupack_agent.node_pod import NodePod, has_shm
from gpupack_crds import names
from gpupack_kube import objects

RESOURCES = frozenset({names.GPU, names.GPU_SHARE})
"""Resources that the kubelet hands out our tickets for, beside those of MIG slices."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """One container's request for tickets."""

    container: str
    resource: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class PodView:
    """What matters of a pod.

    Attributes:
        annotation: the device annotation as it stands, or None.
        asks: the requests of its containers in the order of the spec, then those of its sidecars.
        early: plain init containers that request devices; the kubelet lists no tickets of them.
        finished: no container of it runs or ever will again, says the API.
        finished_at: when that was first seen, monotonic seconds; long ago where it was so before
            the agent started.
        started: a container of it that asks for devices runs or has run, says the API.
        simulates_idle: simulated GPUs of it pass for idle.
        job: the GPUJob whose worker it says to be; empty: none.
        gang: of which it has one /dev/shm with the others on this node, says the Binding; empty:
            of none.
    """

    namespace: str
    name: str
    uid: str
    annotation: str | None = None
    asks: tuple[Ask, ...] = ()
    early: tuple[str, ...] = ()
    finished: bool = False
    finished_at: float = -math.inf
    started: bool = False
    simulates_idle: bool = False
    job: str = ""
    gang: str = ""

    is_shared: bool = False
    """Whether several workers of a gang are in it, says the Binding."""

    @property
    def title(self) -> str:
        """How messages name the pod."""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """A container start that the kubelet wants prepared.

    Attributes:
        resource: the resource that the tickets are of.
        tickets: ids that the kubelet handed out to this container.
    """

    pod: PodView
    container: str
    resource: str
    tickets: frozenset[str]


def view(pod: NodePod, resources: Collection[str] = RESOURCES) -> PodView:
    """Reduce a pod to what matters of it, to those who deal with these resources."""
    sidecars = tuple(each for each in pod.spec.init_containers if _is_sidecar(each))
    plain = tuple(each for each in pod.spec.init_containers if not _is_sidecar(each))
    asks = tuple(_asks((*pod.spec.containers, *sidecars), resources))
    return PodView(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        annotation=pod.metadata.annotations.get(names.DEVICES_ANNOTATION),
        asks=asks,
        early=tuple(dict.fromkeys(ask.container for ask in _asks(plain, resources))),
        finished=pod.finished,
        job=pod.metadata.labels.get(names.JOB_LABEL, ""),
        gang=_gang(pod, {ask.container for ask in asks}),
        is_shared=bool(pod.metadata.annotations.get(names.WORKERS_ANNOTATION)),
        simulates_idle=pod.metadata.annotations.get(names.SIMULATED_IDLE_ANNOTATION) == "true",
        started=_has_started(pod, {ask.container for ask in asks}),
    )


def _gang(pod: NodePod, asking: Collection[str]) -> str:
    """A pod whose /dev/shm is another volume, or none, has it to itself."""
    gang = pod.metadata.annotations.get(names.GANG_MEMORY_ANNOTATION, "")
    return gang if gang and has_shm(pod.spec, asking) else ""


def _is_sidecar(container: objects.Container) -> bool:
    """Whether an init container runs next to the others; the kubelet treats it as one of them."""
    return container.restart_policy == "Always"


def _has_started(pod: objects.Pod, asking: Collection[str]) -> bool:
    """Sidecars may ask too, and their statuses are among those of init containers."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    judged = (status for status in statuses if not asking or status.name in asking)
    return any(map(_has_run, judged))


def _asks(containers: Iterable[objects.Container], resources: Collection[str]) -> Iterator[Ask]:
    for container in containers:
        for resource, quantity in container.resources.limits.items():
            ours = resource in resources or resource.startswith(names.MIG_PREFIX)
            if ours and str(quantity).isdigit() and int(quantity) > 0:
                yield Ask(container=container.name, resource=resource, count=int(quantity))


def _has_run(status: objects.ContainerStatus) -> bool:
    now, before = status.state, status.last_state
    return any((now.running, now.terminated, before.running, before.terminated))


class PodStore:
    """Filled by a reflector; holds the pods that ask for devices or were given some.

    Args:
        observed: resources of other device plugins, to be known besides our own.
    """

    def __init__(self, observed: Collection[str] = ()) -> None:
        self._resources = RESOURCES.union(observed)
        self.synced = False
        """Whether every pod of this node is known: before the first list none is."""
        self.by_uid: dict[str, PodView] = {}

    def replace(self, items: list[NodePod], /) -> None:
        """Forget everything and hold exactly these."""
        known, self.by_uid = self.by_uid, {}
        for item in items:
            self._put(item, known)
        self.synced = True

    def upsert(self, item: NodePod, /) -> None:
        """A pod appeared or changed."""
        self._put(item, self.by_uid)

    def remove(self, item: NodePod, /) -> None:
        """A pod is gone."""
        self.by_uid.pop(item.metadata.uid, None)

    def _put(self, item: NodePod, known: Mapping[str, PodView]) -> None:
        pod = view(item, self._resources)
        before = known.get(pod.uid)
        if before and pod.finished:
            at = before.finished_at if before.finished else time.monotonic()
            pod = dataclasses.replace(pod, finished_at=at)
        if pod.asks or pod.early or pod.annotation is not None:
            self.by_uid[pod.uid] = pod

    def asking(self, resource: str, count: int) -> list[PodView]:
        """Pods that may be handed `count` tickets of `resource`."""
        return [
            pod
            for pod in self.by_uid.values()
            if not pod.finished
            and any(ask.resource == resource and ask.count == count for ask in pod.asks)
        ]

    def started(self, resources: Collection[str]) -> list[PodView]:
        """Pods that ask for any of these, have run and can still run."""
        return [
            pod
            for pod in self.by_uid.values()
            if pod.started
            and not pod.finished
            and any(ask.resource in resources for ask in pod.asks)
        ]
