# SPDX-License-Identifier: Apache-2.0
"""The whole request of a pod, read once.

kube-scheduler's calls contain the whole pod. The watch keeps the pod's rules about nodes, which may
be large, only while the pod waits behind the queue's gate. Where bind needs the request of a pod,
kube-scheduler has already applied the rules.
"""

import dataclasses
from collections.abc import Collection
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_crds.errors import QuantityInvalid
from gpupack_kubeclient import objects
from gpupack_placement import Invalid, NodeSelector, Request, Toleration, TolerationOperator
from gpupack_queue import NO_USER, User
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.gated_pod import GatedPodSpec
from gpupack_scheduler.ledger.workers import WorkerKey, worker_of
from gpupack_scheduler.limits import MAX_CPU, MAX_MEMORY
from gpupack_scheduler.requests import gpu_request, pod_resources
from gpupack_scheduler.requests.created_by import user_of
from gpupack_scheduler.requests.gpu_request import GpuRequest
from gpupack_scheduler.requests.needs import MAX_NAMES
from gpupack_scheduler.requests.node_rules import RawRules
from gpupack_scheduler.requests.pod_groups import Membership, membership_of
from gpupack_scheduler.requests.pod_times import duration_of, grace_of

_EVERY_TAINT = (Toleration(operator=TolerationOperator.EXISTS),)


def _wrong_containers(asking: int, early: int) -> str:
    return (
        f"{asking} of its containers and sidecars ask for GPUs, and {early} of its plain init "
        "containers; at least one container or sidecar must, and no plain init container may"
    )


_NO_GPUS: Final = _wrong_containers(0, 0)
"""Most pods of a cluster request no GPUs, so this text is made once."""


class CalledPodSpec(objects.PodSpec, frozen=True):
    """A PodSpec whose rules about nodes are not decoded yet."""

    node_selector: msgspec.Raw = msgspec.Raw(b"null")
    tolerations: msgspec.Raw = msgspec.Raw(b"null")
    affinity: msgspec.Raw = msgspec.Raw(b"null")


class CalledPod(objects.Object, frozen=True):
    """A pod as kube-scheduler sends it."""

    spec: CalledPodSpec = CalledPodSpec()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A pod and its request."""

    uid: str
    namespace: str
    name: str
    worker: WorkerKey | None
    """The worker that the pod is; None: a standalone pod."""
    request: Request | None
    """The request; None: it can never be served, and `refusal` is the reason."""
    asks_gpus: bool
    """Whether any container names GPUs, validly or not, under a name of gpupack or an observed
    name."""
    refusal: str = ""
    priority: int = 0
    """Priority in the queue, from `queue_priority`."""
    created: float = 0.0
    """Creation time of the pod, seconds since the epoch."""
    duration: float | None = None
    """Seconds that the pod runs at most, from `duration_of`."""
    grace: float = 0.0
    """Seconds that the pod may take to end, from `grace_of`."""
    user: User = NO_USER
    """The user that created the pod, from `user_of`."""
    reservation: str | None = None
    """Name of the time-window reservation that the pod may use, by its annotation."""
    member: Membership | None = None
    """The gang of a pod group with which the pod was admitted."""

    def served(self) -> Request:
        """Return the request.

        Raises:
            RequestInvalid: it cannot be served.
        """
        if self.request is None:
            raise RequestInvalid(self.refusal)
        return self.request


def of_call(pod: CalledPod, observed: Collection[str], *, max_priority: int = 0) -> PodRequest:
    """Return the request of a pod from one of kube-scheduler's calls."""
    spec = pod.spec
    raw = RawRules(
        node_selector=spec.node_selector, tolerations=spec.tolerations, affinity=spec.affinity
    )
    return _ask(pod, spec, raw, observed, queue_priority(spec, max_priority))


def of_watch(pod: objects.Pod, observed: Collection[str], *, max_priority: int = 0) -> PodRequest:
    """Return the request of a pod from the watch, without its rules about nodes."""
    return _ask(pod, pod.spec, None, observed, queue_priority(pod.spec, max_priority))


def of_gated(
    pod: objects.Pod, spec: GatedPodSpec, observed: Collection[str], *, max_priority: int = 0
) -> PodRequest:
    """Return the request of a pod that waits behind the queue's gate."""
    return _ask(pod, spec, spec.rules, observed, queue_priority(spec, max_priority))


def queue_priority(spec: objects.PodSpec, most: int) -> int:
    """Return the priority of a standalone pod in the queue, comparable with that of a GPUJob.

    The value of a PriorityClass with preemptionPolicy Never counts in full: the creator of the
    class permits its use. The value of any other class counts as `most` at the most, like the
    number in a GPUJob: Kubernetes has built-in classes that preempt, which every namespace may use,
    and which precede all others.
    """
    return spec.priority if spec.preemption_policy == "Never" else min(spec.priority, most)


def requests_gpus(spec: objects.PodSpec, observed: Collection[str]) -> bool:
    """Tell whether any container requests GPUs under a name of gpupack or an observed name."""
    return any(_asks(c, observed) for c in (*spec.containers, *spec.init_containers))


def request(
    spec: objects.PodSpec,
    ask: GpuRequest,
    observed: Collection[str],
    *,
    selector: NodeSelector | None,
    tolerations: tuple[Toleration, ...],
) -> Request:
    """Return the request of a pod with this spec.

    Raises:
        RequestInvalid: CPU or memory exceed every node or cannot be read, or there are too many
            resources.
    """
    needs = pod_resources.needs(spec, observed)
    bounds = ((needs.cpu, MAX_CPU, "milli-CPU"), (needs.memory, MAX_MEMORY, "MiB"))
    for asked, most, unit in bounds:
        if asked > most:
            raise RequestInvalid(f"it requests {asked} {unit}; no node has more than {most}")
    if len(needs.extended) > MAX_NAMES:
        raise RequestInvalid(
            f"it requests {len(needs.extended)} resources besides CPU, memory and GPUs; at most "
            f"{MAX_NAMES} are counted: remove those that it does not need"
        )
    return Request(
        gpus=ask.gpus,
        share=ask.share,
        slices=ask.slices,
        resource=ask.resource,
        cpu=needs.cpu,
        memory=needs.memory,
        extended=needs.extended,
        selector=selector,
        tolerations=tolerations,
    )


def _ask(
    pod: CalledPod | objects.Pod,
    spec: objects.PodSpec,
    rules: RawRules | None,
    observed: Collection[str],
    priority: int,
) -> PodRequest:
    asked, refusal, asks_gpus = None, _NO_GPUS, requests_gpus(spec, observed)
    if asks_gpus:
        try:
            asked = _request(pod, spec, rules, observed)
        except (RequestInvalid, QuantityInvalid, Invalid, ValueError, ArithmeticError) as error:
            refusal = str(error)
    return PodRequest(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        worker=worker_of(pod),
        request=asked,
        asks_gpus=asks_gpus,
        refusal="" if asked is not None else f"pod {pod.metadata.name}: {refusal}",
        priority=priority,
        created=created.timestamp() if (created := pod.metadata.creation_timestamp) else 0.0,
        duration=duration_of(spec),
        grace=grace_of(spec),
        user=user_of(pod.metadata),
        reservation=pod.metadata.annotations.get(names.RESERVATION_ANNOTATION),
        member=membership_of(pod.metadata),
    )


def _request(
    pod: CalledPod | objects.Pod,
    spec: objects.PodSpec,
    rules: RawRules | None,
    observed: Collection[str],
) -> Request:
    early = [c for c in pod_resources.plain_init(spec) if _asks(c, ())]
    asking = [c for c in pod_resources.long_running(spec) if _asks(c, observed)]
    if early or not asking:
        raise RequestInvalid(_wrong_containers(len(asking), len(early)))
    meta = pod.metadata
    parts = [
        gpu_request.read(
            container.resources.limits,
            observed,
            annotations=meta.annotations,
            namespace=meta.namespace,
        )
        for container in asking
    ]
    ask = gpu_request.total(parts)
    selector, tolerations = rules.decode().parse() if rules else (None, _EVERY_TAINT)
    return request(spec, ask, observed, selector=selector, tolerations=tolerations)


def _asks(container: objects.Container, observed: Collection[str]) -> bool:
    return gpu_request.requests_of(container.resources.limits, observed)
