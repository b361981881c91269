# SPDX-License-Identifier: Apache-2.0
"""The queue's gate of a pod: the request behind it, and the write that opens it.

    spec.schedulingGates: [{name: gpupack.dev/queue}]       set at creation, by the API server
                    │ one patch, when the queue admits the pod
                    ▼
    spec.schedulingGates: []
    spec.affinity: …requiredDuringScheduling… metadata.name In [NODE]     in every term
    metadata.annotations[gpupack.dev/placement]: {"node":"NODE","workers":"0","gpus":[…],…}

kube-scheduler then considers that one node. A new leader holds the place by the annotation.
"""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob_status import Preemption, RunLimit
from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_node, by_worker
from gpupack_kubeclient import objects
from gpupack_placement import Gang, Request
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.gated_pod import GatedPodSpec
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.queueing.pending.request import GatedPodRequest
from gpupack_scheduler.requests import pod_request, pod_resources
from gpupack_scheduler.requests.needs import Needs
from gpupack_scheduler.requests.pod_groups import Membership

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class PodPlace(NodePlacement, frozen=True):
    """The annotation with the place.

    Attributes:
        pinned: the pod's affinity names the node, too.
        group: the gang of a pod group that was admitted with the pod.
    """

    pinned: bool = False
    group: Membership | None = None


def ask_of(
    pod: objects.Pod,
    observed: Collection[str],
    *,
    max_priority: int,
    limit: RunLimit | None = None,
) -> GatedPodRequest:
    """Return the request of a pod behind the gate; `limit`: the maximum run time by its cohort.

    Raises:
        RequestInvalid: it cannot be served, or its rules about nodes are too long; filter
            reports the reason to its owner.
    """
    if not isinstance(pod.spec, GatedPodSpec):
        raise RequestInvalid("its rules about nodes are read when kube-scheduler asks")
    ask = pod_request.of_gated(pod, pod.spec, observed, max_priority=max_priority)
    return GatedPodRequest(pod=pod, ask=ask, gang=Gang.of(1, ask.served()), limit=limit)


def tickets_of(pod: objects.Pod, observed: Collection[str]) -> dict[str, int]:
    """Return what the kubelet counts for the pod where no devices are named."""
    try:
        return pod_resources.device_tokens(pod.spec, observed)
    except RequestInvalid:
        return {}


def place_of(pod: objects.Pod, request: Request, tickets: dict[str, int]) -> Allocation | None:
    """Return the place with which a queue admitted the pod; None if it cannot be read."""
    written = written_place(pod)
    placed = by_worker((written,)) if written else ()
    if len(placed) != 1:
        return None
    place = claims.placement(
        placed[0].node,
        claims.believed(placed[0].devices),
        needs=Needs.of(request),
    )
    return Allocation(place, {} if placed[0].devices else tickets)


def preemption_of(pod: objects.Pod) -> PlacedPreemption | None:
    """Return the preemption for the pod from its annotation."""
    try:
        return msgspec.json.decode(recorded(pod) or "", type=PlacedPreemption)
    except (msgspec.MsgspecError, RecursionError):
        return None


def recorded(pod: objects.Pod) -> str | None:
    """Return the annotation with the preemption as text."""
    return pod.metadata.annotations.get(names.PREEMPTION_ANNOTATION)


def text_of(preemption: Preemption) -> str:
    """Return the annotation's text for a preemption."""
    return msgspec.json.encode(preemption).decode()


def recording(pod: objects.Pod, text: str | None) -> objects.Json:
    """Return the merge patch that writes the annotation; `text` None removes it."""
    return {"metadata": {**_version(pod), "annotations": {names.PREEMPTION_ANNOTATION: text}}}


def opening(
    pod: objects.Pod, place: Allocation | None, member: Membership | None = None
) -> objects.Json:
    """Return the merge patch that opens the gate; it fails if the pod has changed.

    `place` None: kube-scheduler calls filter for it as for any pod. `member`: the gang of a pod
    group that is admitted with the pod.
    """
    annotations: dict[str, str | None] = {}
    if recorded(pod) is not None:
        annotations[names.PREEMPTION_ANNOTATION] = None
    spec: dict[str, Any] = {"schedulingGates": None}
    if place is not None:
        worker = WorkerPlacement(0, place.node, claims.shares(place.placement))
        (written,) = by_node((worker,))
        affinity = _pinned(pod.spec, place)
        if affinity is not None:
            spec["affinity"] = affinity
        pinned_place = PodPlace(
            **msgspec.structs.asdict(written), pinned=affinity is not None, group=member
        )
        annotations[names.PLACEMENT_ANNOTATION] = msgspec.json.encode(pinned_place).decode()
    return {"metadata": {**_version(pod), "annotations": annotations}, "spec": spec}


def written_place(pod: objects.Pod) -> PodPlace | None:
    """Return the annotation with the place for which the pod was admitted; None: unreadable."""
    written = pod.metadata.annotations.get(names.PLACEMENT_ANNOTATION, "")
    try:
        return msgspec.json.decode(written, type=PodPlace)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _version(pod: objects.Pod) -> dict[str, str]:
    """Return the precondition that makes the write fail if the pod has changed."""
    return {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}


def _pinned(spec: objects.PodSpec, place: Allocation) -> objects.Json | None:
    """Return the pod's node affinity, narrowed to the node; None: it must stay unchanged.

    A term without conditions matches nothing, and would match with one: it is not changed.
    """
    if not isinstance(spec, GatedPodSpec) or not spec.pinnable:
        return None
    given = msgspec.json.decode(spec.rules.affinity) or {}
    required = (given.get("nodeAffinity") or {}).get(_REQUIRED)
    terms = [{}] if required is None else required.get("nodeSelectorTerms") or []
    if required is not None and not all(map(_has_conditions, terms)):
        return None
    name = {"key": "metadata.name", "operator": "In", "values": [place.node]}
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or ()), name]} for term in terms]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": pinned}}}


def _has_conditions(term: dict[str, Any]) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))
