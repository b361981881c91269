# SPDX-License-Identifier: Apache-2.0
"""The request of a GPUJob: all its workers together, of one role or of several."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, Final, Self

import msgspec

from gpupack_crds import quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob import Spread as JobSpread
from gpupack_crds.wire import wire_name
from gpupack_kubeclient import objects
from gpupack_placement import (
    Gang,
    Interconnect,
    Invalid,
    MiB,
    Request,
    Role,
    Spread,
    require_model,
)
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.placed_job import PlacedJob, PlacedJobSpec, PlacedRole
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
_ROLE_FIELDS: Final = (
    "name",
    "workers",
    "gpus",
    "share",
    "gpu_models",
    "min_memory",
    "interconnect",
    "spread",
)
"""Fields of a role that do."""


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


def gang(
    spec: GpuJobSpec, pods: Sequence[WorkerPod], observed: Collection[str], *, namespace: str
) -> Gang:
    """Return the request of all workers that start together.

    `pods` has the pod of each role, or one pod if all workers are alike. They may be unchecked: no
    API server has validated them.

    Raises:
        RequestInvalid: a quantity or a selector in a pod spec is invalid, a requested resource is
            not served, a pod spec requests GPUs of another resource than the job's, there is no pod
            for each role, or no placement can keep the limits of the roles and of the job together.
    """
    for pod in pods:
        _require_no_others(pod.spec, spec.resource_name, observed)
    try:
        if not spec.roles:
            request = _request(spec, pods[0], observed, namespace=namespace)
            return Gang.of(spec.least, request, _spread(spec.spread))
        if len(pods) != len(spec.roles):
            message = f"{len(spec.roles)} roles have {len(pods)} pods; send one for each"
            raise RequestInvalid(message)
        return Gang(
            tuple(
                Role(
                    role.name,
                    role.workers,
                    _request(spec.of_role(role), pod, observed, namespace=namespace),
                    _spread(role.spread),
                )
                for role, pod in zip(spec.roles, pods, strict=True)
            ),
            _spread(spec.spread),
        )
    except (QuantityInvalid, Invalid, ValueError, ArithmeticError) as error:
        raise RequestInvalid(f"spec cannot be planned: {error}") from error


def of_placed(job: PlacedJob, observed: Collection[str]) -> Gang | None:
    """Return the request of a job's workers as they were planned; None if it cannot be read."""
    planned = [part.status.planned_pod for part in job.by_role]
    if any(each is not None and each.omitted for each in planned):
        return None
    try:
        spec = msgspec.convert(_fields(job.spec), GpuJobSpec)
        templates = [part.planned for part in job.by_role]
        pods = [WorkerPod.read(each.spec, each.rules) for each in templates]
        return gang(spec, pods, observed, namespace=job.metadata.namespace)
    except (RequestInvalid, msgspec.MsgspecError, RecursionError):
        return None


def _fields(spec: PlacedJobSpec) -> dict[str, Any]:
    """Return the fields that determine where the workers can run, as the API has them."""
    fields = _written(spec, _SPEC_FIELDS)
    if spec.roles:
        fields["roles"] = [_written(role, _ROLE_FIELDS) for role in spec.roles]
    return fields


def _written(part: PlacedJobSpec | PlacedRole, names: Collection[str]) -> dict[str, Any]:
    fields = {wire_name(name): getattr(part, name) for name in names}
    return {key: value for key, value in fields.items() if value is not None}


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


def _spread(spread: JobSpread | None) -> Spread:
    if spread is None:
        return Spread()
    return Spread(
        max_nodes=spread.max_nodes,
        one_worker_per_node=spread.one_worker_per_node,
        same_clique=spread.one_clique,
    )
