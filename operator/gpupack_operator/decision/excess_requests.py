# SPDX-License-Identifier: Apache-2.0
"""Requests of pods beyond the pod with which they were planned.

Admission may change between the dry run and the creation of the pods. The ledger counts a pod as it
is; kube-scheduler may find too little free on the planned node.
"""

from collections.abc import Iterable, Iterator

import msgspec

from gpupack_crds import quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob_status import PlannedPod
from gpupack_kubeclient.objects import Pod, PodSpec

Requests = dict[str, str | int | float]


def find_excess_request(pods: Iterable[Pod], planned: PlannedPod | None) -> str:
    """Return the first request beyond the plan; empty: none is known."""
    if planned is None or planned.omitted:
        return ""
    try:
        was = dict(_requests(msgspec.convert(planned.spec, PodSpec)))
    except msgspec.ValidationError:
        return ""
    parts = (part for pod in pods for part in _requests(pod.spec))
    return next(filter(None, (_more(part, now, was.get(part)) for part, now in parts)), "")


def _requests(spec: PodSpec) -> Iterator[tuple[str, Requests]]:
    """Yield the requests of each part of a pod."""
    for container in (*spec.containers, *spec.init_containers):
        requested = container.resources
        yield f"container {container.name}", dict(requested.limits) | requested.requests
    yield "the pod as a whole", spec.resources.requests
    yield "overhead", spec.overhead


def _more(part: str, now: Requests, was: Requests | None) -> str:
    if not now:
        return ""
    if was is None:
        return f"{part} was added"
    for name, requested in sorted(now.items()):
        planned = was.get(name, 0)
        if requested != planned and _exceeds(requested, planned):
            return f"{part} requests {name}: {requested}, planned was {planned}"
    return ""


def _exceeds(requested: str | float, planned: str | float) -> bool:
    try:
        return quantity.amount(requested) > quantity.amount(planned)
    except QuantityInvalid:
        return False
