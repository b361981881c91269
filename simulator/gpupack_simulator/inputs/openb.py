# SPDX-License-Identifier: Apache-2.0
"""The openb CSVs: nodes, and pods of one worker each.

The traces record no GPU memory and no pod requests any, so every GPU gets the same, GPU_MEMORY.
`num_gpu` 1 with `gpu_milli` below 1000 is a share; `gpu_spec` lists models joined by |. Only
`read_timed_jobs` reads the columns of times and classes of service: the published experiment has no
clock.
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from gpupack_placement import (
    WHOLE_GPU,
    Device,
    DeviceUuid,
    MiB,
    MilliCpu,
    MilliGpu,
    Node,
    NodeName,
    Request,
    Share,
)
from gpupack_simulator.inputs.csvfile import Line, read_rows
from gpupack_simulator.inputs.faults import Faults, converted
from gpupack_simulator.inputs.trace import Trace, from_zero
from gpupack_simulator.job import Job, JobId

GPU_MEMORY = MiB(16_384)
_MAX_GPUS = 1024

Name = Annotated[str, Meta(min_length=1)]
Amount = Annotated[int, Meta(ge=0, le=2**40)]

Seconds = Annotated[float, Meta(ge=0, le=2**40)]


class NodeRow(Struct):
    """One node."""

    sn: Name
    cpu_milli: Amount
    memory_mib: Amount
    gpu: Annotated[int, Meta(ge=0, le=_MAX_GPUS)]
    model: str


class PodRow(Struct):
    """One pod; gpu_milli is per GPU."""

    name: Name
    cpu_milli: Amount
    memory_mib: Amount
    num_gpu: Annotated[int, Meta(ge=0, le=_MAX_GPUS)]
    gpu_milli: Annotated[int, Meta(ge=0, le=WHOLE_GPU)]
    gpu_spec: str = ""


class TimedPodRow(PodRow, kw_only=True):
    """One pod with its times in seconds; `scheduled_time` is empty if it never ran."""

    creation_time: Seconds
    deletion_time: Seconds
    scheduled_time: str
    qos: Name


class Pod(Struct, frozen=True):
    """A pod of the trace: its name and its request."""

    name: str
    request: Request


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Read the file, in its order.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    lines = read_rows(NodeRow, faults)
    _once([(line.number, line.row.sn) for line in lines], "sn", faults)
    for line in lines:
        if line.row.gpu and not line.row.model:
            faults.add(line.number, "model", f"{line.row.sn} has GPUs of no model")
    if not lines and not len(faults):
        faults.add(0, "", "has no nodes")
    faults.check()
    return tuple(_node(line.row) for line in lines)


def read_pods(path: Path) -> tuple[Pod, ...]:
    """Read the file, in its order.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    lines = read_rows(PodRow, faults)
    _once([(line.number, line.row.name) for line in lines], "name", faults)
    for line in lines:
        _judge(line.number, line.row, faults)
    if not lines and not len(faults):
        faults.add(0, "", "has no pods")
    faults.check()
    known: dict[Request, Request] = {}
    requests = (_request(line.row) for line in lines)
    return tuple(
        Pod(line.row.name, known.setdefault(request, request))
        for line, request in zip(lines, requests, strict=True)
    )


def read_timed_jobs(path: Path) -> Trace:
    """Read the pods as jobs of one worker each, which arrive at their creation, the first at 0.

    A job's duration is the time from its scheduling to its deletion, at least a second. Its tenant
    is its class of service, the only attribute by which the trace groups pods. Pods that never ran
    are left out.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    lines = read_rows(TimedPodRow, faults)
    _once([(line.number, line.row.name) for line in lines], "name", faults)
    jobs, known = [], dict[Request, Request]()
    for line in lines:
        _judge(line.number, line.row, faults)
        started = _scheduled(line, faults)
        if started is not None and not len(faults):
            request = _request(line.row)
            jobs.append(
                Job(
                    JobId(line.row.name),
                    line.row.creation_time,
                    known.setdefault(request, request),
                    duration=max(line.row.deletion_time - started, 1.0),
                    tenant=line.row.qos,
                )
            )
    if not jobs and not len(faults):
        faults.add(0, "", "has no pods that ran")
    faults.check()
    first = min(job.arrival for job in jobs)
    never = len(lines) - len(jobs)
    return Trace(tuple(from_zero(jobs, first)), {"never ran": never} if never else {})


def _scheduled(line: Line[TimedPodRow], faults: Faults) -> float | None:
    """Return the scheduling time; None: the pod never ran, or there was a fault."""
    cell = line.row.scheduled_time
    if not cell:
        return None
    started = _seconds(cell)
    if isinstance(started, str):
        faults.add(line.number, "scheduled_time", f"{cell[:60]!r} is no time: {started}")
        return None
    if started > line.row.deletion_time:
        faults.add(
            line.number, "deletion_time", f"{line.row.deletion_time:g} is before {started:g}"
        )
    return started


def _seconds(cell: str) -> float | str:
    """Return the seconds, or the fault of the cell."""
    found: float | str = converted(cell, Seconds, strict=False)
    return found


def _once(names: list[tuple[int, str]], column: str, faults: Faults) -> None:
    first: dict[str, int] = {}
    for number, name in names:
        if first.setdefault(name, number) != number:
            faults.add(number, column, f"{name!r} stands on line {first[name]} too")


def _judge(number: int, pod: PodRow, faults: Faults) -> None:
    if pod.num_gpu == 1 and pod.gpu_milli == 0:
        faults.add(number, "gpu_milli", "a pod with 1 GPU needs 1 to 1000, not 0")
    if pod.num_gpu > 1 and pod.gpu_milli != WHOLE_GPU:
        faults.add(
            number,
            "gpu_milli",
            f"a pod with {pod.num_gpu} GPUs gets whole ones: 1000, not {pod.gpu_milli}",
        )
    if pod.num_gpu == 0 and pod.gpu_milli:
        faults.add(number, "gpu_milli", f"a pod without GPU needs 0, not {pod.gpu_milli}")
    if any(not model.strip() for model in pod.gpu_spec.split("|")) and pod.gpu_spec:
        faults.add(number, "gpu_spec", f"{pod.gpu_spec!r} has an empty model")


def _node(row: NodeRow) -> Node:
    devices = tuple(
        Device(DeviceUuid(f"{row.sn}-gpu-{index}"), index, row.model, GPU_MEMORY)
        for index in range(row.gpu)
    )
    return Node(NodeName(row.sn), devices, MilliCpu(row.cpu_milli), MiB(row.memory_mib))


def _request(row: PodRow) -> Request:
    cpu, memory = MilliCpu(row.cpu_milli), MiB(row.memory_mib)
    models = tuple(model for model in row.gpu_spec.split("|") if model) if row.num_gpu else ()
    if row.num_gpu == 1 and row.gpu_milli < WHOLE_GPU:
        share = Share(MilliGpu(row.gpu_milli), MiB(0))
        return Request(share=share, models=models, cpu=cpu, memory=memory)
    return Request(gpus=row.num_gpu, models=models, cpu=cpu, memory=memory)
