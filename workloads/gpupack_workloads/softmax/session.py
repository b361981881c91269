# SPDX-License-Identifier: Apache-2.0
"""Measures softmax at every length of rows and in every type, and makes the result."""

import torch

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import closest
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.softmax.measure import WAYS, Measured, Repetitions, SoftmaxProblem, measure
from gpupack_workloads.softmax.options import SoftmaxOptions, lengths

ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 14}
DTYPES = {"cuda": (torch.float32, torch.bfloat16), "cpu": (torch.float32,)}
REPETITIONS = {
    "cuda": Repetitions(repeats=10, rounds=5, warm_up=3),
    "cpu": Repetitions(repeats=1, rounds=1, warm_up=0),
}
# X, dY, Y, and what five rivals left.
MATRICES = 8
RATIOS = tuple(f"{way}_{rival}_ratio" for rival in ("copy", "torch") for way in WAYS)


def run(options: SoftmaxOptions) -> Result:
    """Check and time every problem.

    Raises:
        OutOfMemory: a matrix does not fit.
        WrongResult: a value is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    effort = REPETITIONS[device.torch.type]
    wanted = problems(options, device)
    doing = f"softmax of {options.size or ELEMENTS[device.torch.type]} elements"
    require_memory(
        device, doing=doing, on_device=MATRICES * max(problem.bytes for problem in wanted)
    )
    with memory_errors(doing):
        found = [
            measure(problem, device=device, repetitions=effort, seed=options.seed)
            for problem in wanted
        ]
    return summarise(found, device)


def problems(options: SoftmaxOptions, device: Device) -> list[SoftmaxProblem]:
    """Return matrices of about as many elements each, whatever the length of their rows."""
    kind = device.torch.type
    size = options.size or ELEMENTS[kind]
    return [
        SoftmaxProblem(rows=max(1, size // columns), columns=columns, dtype=dtype)
        for dtype in DTYPES[kind]
        for columns in lengths(options.columns, simulated=device.simulated)
    ]


def summarise(found: list[Measured], device: Device) -> Result:
    """Make the result: the worst ratio of all problems, and a table."""
    rows = [measured.row() for measured in found]
    metrics: dict[str, Scalar] = {name: min(float(row[name]) for row in rows) for name in RATIOS}
    for way in WAYS:
        worst = closest([measured.agreements[way] for measured in found])
        metrics |= {f"{way}_error": worst.error, f"{way}_error_bound": worst.bound}
    for measured in found:
        name = f"{measured.problem.type_name}_{measured.problem.columns}"
        for way in WAYS:
            metrics[f"{way}_{name}_gb_per_s"] = round(measured.gb_per_s(way), 1)
        metrics[f"copy_{name}_gb_per_s"] = round(measured.gb_per_s("copy"), 1)
    worst_ratio = min(metrics["forward_copy_ratio"], metrics["backward_copy_ratio"])
    return Result(
        workload="softmax",
        headline=headline(f"{worst_ratio:.2f} x copy at least", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=rows,
    )
