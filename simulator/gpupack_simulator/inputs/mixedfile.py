# SPDX-License-Identifier: Apache-2.0
"""A mixed cluster and its jobs in YAML. Memory in GiB, CPU in cores.

    pods: 4000                # number of pods to draw
    seed: 0                   # seed of the draw
    nodes:                    # as in a scenario
      - {name: t4, gpus: 4, model: T4, gpuMemory: 16, cpu: 48, memory: 192, count: 6}
    sizes:                    # the other fields of a job, without its times and its wish
      - {weight: 3, share: {percent: 25}, cpu: 3}
      - {weight: 2, gpus: 1, cpu: 8}
    wishes:
      - {weight: 2}           # any GPU
      - {weight: 1, minGpuMemory: 40}
      - {weight: 1, gpuModels: [A100, H100]}

Weights give relative frequencies (mixed.py).
"""

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from gpupack_placement import DecisionError, Node, Request
from gpupack_simulator.errors import SimulatorError
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.scenario import Reading
from gpupack_simulator.inputs.specs import Cores, Gib, Gpus, JobSpec, Name, ShareSpec, request_of
from gpupack_simulator.inputs.typed import fields_of, items, one
from gpupack_simulator.inputs.yamlfile import Document
from gpupack_simulator.mixed import MAX_PODS, MixedStyle, WeightedRequest

_LISTS = ("nodes", "sizes", "wishes")
Weight = Annotated[float, Meta(gt=0, le=1e9)]


class _Frame(Struct, forbid_unknown_fields=True):
    """The fields that are not lists."""

    pods: Annotated[int, Meta(ge=1, le=MAX_PODS)] = 4000
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0


class SizeSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `sizes`, with fields of a job."""

    weight: Weight
    gpus: Gpus | None = None
    share: ShareSpec | None = None
    cpu: Cores = 0.0
    memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0


class WishSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `wishes`; without both fields any GPU is accepted."""

    weight: Weight
    gpu_models: list[Name] = []
    min_gpu_memory: Gib | None = None


def read_mixed(path: Path) -> MixedStyle:
    """Read the description of a mixed cluster.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    top = fields_of(document.data, "", document, faults)
    rest = {key: value for key, value in top.items() if key not in _LISTS}
    frame = one(rest, _Frame, "", document, faults) or _Frame()
    nodes = Reading(document, faults).nodes(top.get("nodes"))
    sizes = _weighted(top, "sizes", SizeSpec, document, faults)
    wishes = _weighted(top, "wishes", WishSpec, document, faults)
    style = _made(nodes, sizes, wishes, frame, faults)
    faults.check()
    assert style is not None  # noqa: S101  # else there was a fault
    return style


def _weighted(
    top: dict[str, Any], name: str, into: Any, document: Document, faults: Faults
) -> tuple[WeightedRequest, ...]:
    found = []
    for path, spec in items(top.get(name), into, name, document, faults):
        try:
            found.append(WeightedRequest(_request(spec), spec.weight))
        except DecisionError as error:
            faults.add(document.line(path), path, str(error))
    return tuple(found)


def _request(spec: SizeSpec | WishSpec) -> Request:
    if isinstance(spec, WishSpec):
        least = spec.min_gpu_memory or 0.0
        return request_of(JobSpec("", 0, gpu_models=spec.gpu_models, min_gpu_memory=least))
    return request_of(JobSpec("", spec.gpus, spec.share, cpu=spec.cpu, memory=spec.memory))


def _made(
    nodes: tuple[Node, ...],
    sizes: tuple[WeightedRequest, ...],
    wishes: tuple[WeightedRequest, ...],
    frame: _Frame,
    faults: Faults,
) -> MixedStyle | None:
    try:
        return MixedStyle(nodes=nodes, sizes=sizes, wishes=wishes, pods=frame.pods, seed=frame.seed)
    except SimulatorError as error:
        faults.add(0, "", str(error))
        return None
