# SPDX-License-Identifier: Apache-2.0
"""The pods of this node that concern the agent, kept up to date by a watch."""

import dataclasses
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from gpupack_agent.node_pod import NodePod
from gpupack_crds import names
from gpupack_crds.worker_memory import has_shm
from gpupack_kubeclient import objects

RESOURCES = frozenset({names.GPU, names.GPU_SHARE})
"""The resources of gpupack's device tokens, without those of MIG slices."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One container's request for device tokens."""

    container: str
    resource: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class PodView:
    """The properties of a pod that concern the agent.

    Attributes:
        annotation: the text of the device annotation, or None.
        requests: the requests of its containers in the order of the spec, then those of its
            sidecars.
        plain_init_containers: plain init containers that request devices; the kubelet lists no
            device tokens of them.
        finished: whether, by the API, no container of it runs or will run again.
        finished_at: when the agent first saw that, monotonic seconds; minus infinity if the pod had
            finished before the agent first saw it.
        started: whether, by the API, a container of it that requests devices runs or has run.
        simulates_idle: whether its simulated GPUs count as idle.
        job: the GPUJob of its label; empty: none.
        gang: the gang, from the Binding, with whose pods on this node it shares one /dev/shm;
            empty: none.
    """

    namespace: str
    name: str
    uid: str
    annotation: str | None = None
    requests: tuple[DeviceRequest, ...] = ()
    plain_init_containers: tuple[str, ...] = ()
    finished: bool = False
    finished_at: float = -math.inf
    started: bool = False
    simulates_idle: bool = False
    job: str = ""
    gang: str = ""

    is_shared: bool = False
    """Whether, by the Binding, several workers of a gang share this pod."""

    @property
    def title(self) -> str:
        """Return the pod's name as messages show it."""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """A container start that the kubelet asks the agent to prepare.

    Attributes:
        resource: the resource of the device tokens.
        tokens: IDs of the device tokens that the kubelet handed out to this container.
    """

    pod: PodView
    container: str
    resource: str
    tokens: frozenset[str]


def view(pod: NodePod, resources: Collection[str] = RESOURCES) -> PodView:
    """Reduce a pod to the properties that concern these resources."""
    sidecars = tuple(each for each in pod.spec.init_containers if _is_sidecar(each))
    plain = tuple(each for each in pod.spec.init_containers if not _is_sidecar(each))
    requests = tuple(_device_requests((*pod.spec.containers, *sidecars), resources))
    return PodView(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        annotation=pod.metadata.annotations.get(names.DEVICES_ANNOTATION),
        requests=requests,
        plain_init_containers=tuple(
            dict.fromkeys(request.container for request in _device_requests(plain, resources))
        ),
        finished=pod.finished,
        job=pod.metadata.labels.get(names.JOB_LABEL, ""),
        gang=_gang(pod, {request.container for request in requests}),
        is_shared=bool(pod.metadata.annotations.get(names.WORKERS_ANNOTATION)),
        simulates_idle=pod.metadata.annotations.get(names.SIMULATED_IDLE_ANNOTATION) == "true",
        started=_has_started(pod, {request.container for request in requests}),
    )


def _gang(pod: NodePod, requesting: Collection[str]) -> str:
    """Return the gang with which a pod shares /dev/shm; empty: none.

    A pod whose /dev/shm is not gpupack's volume shares none.
    """
    gang = pod.metadata.annotations.get(names.GANG_MEMORY_ANNOTATION, "")
    return gang if gang and has_shm(pod.spec, requesting) else ""


def _is_sidecar(container: objects.Container) -> bool:
    """Tell whether an init container runs alongside the others, as a sidecar does."""
    return container.restart_policy == "Always"


def _has_started(pod: objects.Pod, requesting: Collection[str]) -> bool:
    """Tell whether a container with a request has run; if none has one, whether any has run.

    Sidecars may have requests, too. Their statuses are among those of init containers.
    """
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    judged = (status for status in statuses if not requesting or status.name in requesting)
    return any(map(_has_run, judged))


def _device_requests(
    containers: Iterable[objects.Container], resources: Collection[str]
) -> Iterator[DeviceRequest]:
    for container in containers:
        for resource, quantity in container.resources.limits.items():
            is_counted = resource in resources or resource.startswith(names.MIG_PREFIX)
            if is_counted and str(quantity).isdigit() and int(quantity) > 0:
                yield DeviceRequest(
                    container=container.name, resource=resource, count=int(quantity)
                )


def _has_run(status: objects.ContainerStatus) -> bool:
    now, before = status.state, status.last_state
    return any((now.running, now.terminated, before.running, before.terminated))


class PodStore:
    """The pods that request devices or were given some, filled by a reflector.

    Args:
        observed: resources of other device plugins, in addition to gpupack's.
    """

    def __init__(self, observed: Collection[str] = ()) -> None:
        self._resources = RESOURCES.union(observed)
        self.synced = False
        """Whether the pods of this node are known, which is so after the first list."""
        self.by_uid: dict[str, PodView] = {}

    def replace(self, items: list[NodePod], /) -> None:
        """Replace all pods by these."""
        known, self.by_uid = self.by_uid, {}
        for item in items:
            self._put(item, known)
        self.synced = True

    def upsert(self, item: NodePod, /) -> None:
        """Add or update a pod."""
        self._put(item, self.by_uid)

    def remove(self, item: NodePod, /) -> None:
        """Remove a pod that is gone."""
        self.by_uid.pop(item.metadata.uid, None)

    def _put(self, item: NodePod, known: Mapping[str, PodView]) -> None:
        pod = view(item, self._resources)
        before = known.get(pod.uid)
        if before and pod.finished:
            at = before.finished_at if before.finished else time.monotonic()
            pod = dataclasses.replace(pod, finished_at=at)
        if pod.requests or pod.plain_init_containers or pod.annotation is not None:
            self.by_uid[pod.uid] = pod

    def requesting(self, resource: str, count: int) -> list[PodView]:
        """Return the pods with a container that requests `count` device tokens of `resource`."""
        return [
            pod
            for pod in self.by_uid.values()
            if not pod.finished
            and any(
                request.resource == resource and request.count == count for request in pod.requests
            )
        ]

    def started(self, resources: Collection[str]) -> list[PodView]:
        """Return the pods that request any of these, have started and have not finished."""
        return [
            pod
            for pod in self.by_uid.values()
            if pod.started
            and not pod.finished
            and any(request.resource in resources for request in pod.requests)
        ]
