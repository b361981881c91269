# SPDX-License-Identifier: Apache-2.0
"""The request of a GPUJob: all its workers together."""

import dataclasses
from collections.abc import Collection
from typing import Final, Self

import msgspec

from gpupack_crds import quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.wire import wire_name
from gpupack_kubeclient import objects
from gpupack_placement import Gang, Interconnect, Invalid, MiB, Request, Spread, require_model
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.limits import believed
from gpupack_scheduler.requests import gpu_request, pod_request
from gpupack_scheduler.requests.node_rules import NodeRules
from gpupack_scheduler.requests.pod_times import grace_of

_SPEC_FIELDS: Final = (
    "workers",
    "min_workers",
    "gpus",
    "share",
    "mig",
    "resource_name",
    "gpu_models",
    "min_memory",
    "interconnect",
    "spread",
)
"""Fields of a GPUJob's spec that determine where its workers can run."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerPod:
    """The pod of a worker: its spec, and its rules about nodes."""

    spec: objects.PodSpec
    rules: NodeRules

    @classmethod
    def read(cls, spec: msgspec.Raw, rules: msgspec.Raw | None = None) -> Self:
        """Decode a pod's spec; `rules` has the rules, unless the spec has them itself.

        Raises:
            RequestInvalid: one of them cannot be read.
        """
        try:
            return cls(
                msgspec.json.decode(spec, type=objects.PodSpec),
                msgspec.json.decode(spec if rules is None else rules, type=NodeRules),
            )
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RequestInvalid(f"podSpec: {error}") from error

    @property
    def grace(self) -> float:
        """Return the seconds that a worker may take to end."""
        return grace_of(self.spec)


def gang(spec: GpuJobSpec, pod: WorkerPod, observed: Collection[str], *, namespace: str) -> Gang:
    """Return the request of all workers that start together.

    The pod may be unchecked: no API server has validated it.

    Raises:
        RequestInvalid: a quantity or a selector in the pod spec is invalid, a requested resource is
            not served, or the pod spec requests GPUs of another resource than the job's.
    """
    _require_no_others(pod.spec, spec.resource_name, observed)
    try:
        request = _request(spec, pod, observed, namespace=namespace)
        return Gang.of(spec.least, request, _spread(spec))
    except (QuantityInvalid, Invalid, ValueError, ArithmeticError) as error:
        raise RequestInvalid(f"spec cannot be planned: {error}") from error


def of_placed(job: PlacedJob, observed: Collection[str]) -> Gang | None:
    """Return the request of a job's workers as they were planned; None if it cannot be read."""
    if job.status.planned_pod is not None and job.status.planned_pod.omitted:
        return None
    template = job.planned
    fields = {wire_name(name): getattr(job.spec, name) for name in _SPEC_FIELDS}
    try:
        spec = msgspec.convert({k: v for k, v in fields.items() if v is not None}, GpuJobSpec)
        pod = WorkerPod.read(template.spec, template.rules)
        return gang(spec, pod, observed, namespace=job.metadata.namespace)
    except (RequestInvalid, msgspec.MsgspecError, RecursionError):
        return None


def _request(
    spec: GpuJobSpec, pod: WorkerPod, observed: Collection[str], *, namespace: str
) -> Request:
    for model in spec.gpu_models:
        require_model(model)
    selector, tolerations = pod.rules.parse()
    ask = gpu_request.of_job(spec, observed, namespace=namespace)
    of_pod = pod_request.request(
        pod.spec, ask, observed, selector=selector, tolerations=tolerations
    )
    return dataclasses.replace(
        of_pod,
        models=spec.gpu_models,
        min_memory=MiB(believed(quantity.mebibytes(spec.min_memory or 0))),
        interconnect=Interconnect(spec.interconnect),
    )


def _require_no_others(worker: objects.PodSpec, resource: str, observed: Collection[str]) -> None:
    """Require that no container requests GPUs of another resource than the job's.

    No node has GPUs of two names, so such a worker would hold its place and never start.
    """
    for container in (*worker.containers, *worker.init_containers):
        asked = dict(container.resources.limits) | container.resources.requests
        for name, count in sorted(asked.items()):
            if name in observed and name != resource:
                raise RequestInvalid(
                    f"container {container.name} asks for {name}: {count}, but the job's GPUs are "
                    f"{resource}; remove that from its resources, and if those are the GPUs that "
                    f"you want write resourceName: {name} and gpus: {count} in spec"
                )


def _spread(spec: GpuJobSpec) -> Spread:
    if spec.spread is None:
        return Spread()
    return Spread(
        max_nodes=spec.spread.max_nodes,
        one_worker_per_node=spec.spread.one_worker_per_node,
        same_clique=spec.spread.one_clique,
    )
