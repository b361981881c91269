# SPDX-License-Identifier: Apache-2.0
"""What a pod or a job asks for, as a request to core.

CPU and memory are counted as kube-scheduler counts them, so that a place does not die in its own
filters later: the sum of the containers and sidecars, or the peak of the init phase if that is
more, plus overhead.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_extender import gpu_ask
from gpupack_extender.errors import AskInvalid
from gpupack_extender.gpu_ask import GpuAsk
from gpupack_extender.limits import believed
from gpupack_kube import objects

_ANY_MEMORY = core.MiB(0)

_milli_cpu = functools.lru_cache(maxsize=1024)(quantity.milli_cpu)
_mebibytes = functools.lru_cache(maxsize=1024)(quantity.mebibytes)

_MEASURES: Mapping[str, Callable[[str | int | float], int]] = {
    "cpu": _milli_cpu,
    "memory": _mebibytes,
}
"""Whatever is not named here is counted in whole pieces."""


def asks_for_gpus(spec: objects.PodSpec, observed: Collection[str]) -> bool:
    """Whether any container asks for GPUs by one of our resources or of those observed."""
    return any(_asks(c, observed) for c in (*spec.containers, *spec.init_containers))


def pod_request(pod: objects.Pod, observed: Collection[str]) -> core.Request:
    """What a pod of its own asks for.

    Raises:
        AskInvalid: it asks for nothing of ours, or for something that cannot be served.
    """
    asking = [c for c in _long_running(pod.spec) if _asks(c, observed)]
    if len(asking) != 1:
        raise AskInvalid(
            f"{len(asking)} containers of pod {pod.metadata.name} ask for GPUs; "
            "exactly one container or sidecar may, and no plain init container"
        )
    try:
        return _request(pod.spec, gpu_ask.read(asking[0].resources.limits, observed))
    except (QuantityInvalid, core.Invalid, ValueError, ArithmeticError) as error:
        raise AskInvalid(f"pod {pod.metadata.name}: {error}") from error


def gang(spec: GpuJobSpec, pod_spec: objects.PodSpec, observed: Collection[str]) -> core.Gang:
    """What a GPUJob asks for: all its workers together.

    Raises:
        AskInvalid: a quantity or a selector in the pod spec cannot be read, or a resource is
            asked that is not served, or GPUs of another resource than the job's.
    """
    _require_no_others(pod_spec, spec.resource_name, observed)
    try:
        request = _request(
            pod_spec,
            gpu_ask.of_job(spec, observed),
            models=spec.gpu_models,
            min_memory=core.MiB(believed(quantity.mebibytes(spec.min_memory or 0))),
            interconnect=core.Interconnect(spec.interconnect),
        )
        return core.Gang(spec.workers, request, _spread(spec))
    except (QuantityInvalid, core.Invalid, ValueError, ArithmeticError) as error:
        raise AskInvalid(f"spec cannot be planned: {error}") from error


def template_needs(pod_spec: dict[str, Any]) -> tuple[core.MilliCpu, core.MiB]:
    """CPU and memory of a worker as far as its GPUJob tells; nothing where it cannot be read."""
    try:
        return needs(read_pod_spec(pod_spec))
    except AskInvalid:
        return core.MilliCpu(0), core.MiB(0)


def read_pod_spec(pod_spec: dict[str, Any]) -> objects.PodSpec:
    """Read a PodSpec that no API server has checked.

    Raises:
        AskInvalid: the message says which field is wrong.
    """
    try:
        return msgspec.convert(pod_spec, objects.PodSpec)
    except msgspec.ValidationError as error:
        raise AskInvalid(f"podSpec: {error}") from error


def needs(spec: objects.PodSpec) -> tuple[core.MilliCpu, core.MiB]:
    """CPU and memory that kube-scheduler counts for a pod.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    try:
        cpu = sum(map(_milli_cpu, _peak(spec, "cpu")))
        memory = sum(map(_mebibytes, _peak(spec, "memory")))
    except (QuantityInvalid, ArithmeticError) as error:
        raise AskInvalid(f"requests cannot be counted: {error}") from error
    return core.MilliCpu(believed(cpu)), core.MiB(believed(memory))


def tickets(spec: objects.PodSpec, observed: Collection[str]) -> dict[str, int]:
    """GPUs and slots for shares that the kubelet counts for a pod, by resource name.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    try:
        counted = {
            name: believed(sum(map(quantity.count, _peak(spec, name))))
            for name in (names.GPU, names.GPU_SHARE, *observed)
        }
    except QuantityInvalid as error:
        raise AskInvalid(f"GPUs cannot be counted: {error}") from error
    return {name: number for name, number in counted.items() if number}


def _request(
    spec: objects.PodSpec,
    ask: GpuAsk,
    *,
    models: tuple[str, ...] = (),
    min_memory: core.MiB = _ANY_MEMORY,
    interconnect: core.Interconnect = core.Interconnect.ANY,
) -> core.Request:
    cpu, memory = needs(spec)
    return core.Request(
        gpus=ask.gpus,
        share=ask.share,
        resource=ask.resource,
        models=models,
        min_memory=min_memory,
        interconnect=interconnect,
        cpu=cpu,
        memory=memory,
        selector=_selector(spec),
        tolerations=tuple(map(_toleration, spec.tolerations)),
    )


def _require_no_others(pod_spec: objects.PodSpec, resource: str, observed: Collection[str]) -> None:
    """No node has GPUs of two names: such a worker would hold its place and never start."""
    asked = {
        name
        for container in (*pod_spec.containers, *pod_spec.init_containers)
        for name in container.resources.limits
        if name in observed and name != resource
    }
    if asked:
        raise AskInvalid(
            f"the template asks for {', '.join(sorted(asked))}, but the job's GPUs are {resource}; "
            "remove it from the container's resources, or set resourceName"
        )


def _spread(spec: GpuJobSpec) -> core.Spread:
    if spec.spread is None:
        return core.Spread()
    return core.Spread(
        max_nodes=spec.spread.max_nodes,
        one_worker_per_node=spec.spread.one_worker_per_node,
        same_clique=spec.spread.one_clique,
    )


def _asks(container: objects.Container, observed: Collection[str]) -> bool:
    return gpu_ask.asks(container.resources.limits, observed)


def _long_running(spec: objects.PodSpec) -> list[objects.Container]:
    return [*spec.containers, *(c for c in spec.init_containers if _is_sidecar(c))]


def _is_sidecar(container: objects.Container) -> bool:
    return container.restart_policy == "Always"


def _peak(spec: objects.PodSpec, name: str) -> Iterable[str | int | float]:
    """The quantities whose sum is what the pod needs of one resource."""
    measure = _MEASURES.get(name, quantity.count)
    peak = _asked(_long_running(spec), name)
    sidecars: list[objects.Container] = []
    for container in spec.init_containers:
        starting = _asked([*sidecars, container], name)
        peak = max(peak, starting, key=lambda phase: sum(map(measure, phase)))
        if _is_sidecar(container):
            sidecars.append(container)
    return [*peak, spec.overhead.get(name, 0)]


def _asked(containers: list[objects.Container], name: str) -> list[str | int | float]:
    resources = [container.resources for container in containers]
    return [r.requests.get(name, r.limits.get(name, 0)) for r in resources]


def _selector(spec: objects.PodSpec) -> core.NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if not spec.node_selector and required is None:
        return None
    terms = None if required is None else tuple(map(_term, required.node_selector_terms))
    return core.NodeSelector(tuple(sorted(spec.node_selector.items())), terms)


def _term(term: objects.NodeSelectorTerm) -> core.Term:
    return core.Term(
        tuple(map(_requirement, term.match_expressions)),
        tuple(map(_requirement, term.match_fields)),
    )


def _requirement(requirement: objects.SelectorRequirement) -> core.Requirement:
    operator = core.Operator(requirement.operator)
    return core.Requirement(requirement.key, operator, requirement.values)


def _toleration(toleration: objects.Toleration) -> core.Toleration:
    return core.Toleration(
        key=toleration.key,
        operator=core.TolerationOperator(toleration.operator),
        value=toleration.value,
        effect=core.Effect(toleration.effect) if toleration.effect else None,
    )
