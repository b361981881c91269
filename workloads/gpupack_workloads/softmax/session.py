# SPDX-License-Identifier: Apache-2.0
"""Measures softmax at every length of rows and in every type, and makes the result."""

import torch

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.kernels.agreement import closest
from gpupack_workloads.memory import require_memory
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.softmax.measure import Case, Effort, Measured, measure
from gpupack_workloads.softmax.options import SoftmaxOptions, lengths

ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 14}
DTYPES = {"cuda": (torch.float32, torch.bfloat16), "cpu": (torch.float32,)}
EFFORT = {
    "cuda": Effort(repeats=10, rounds=5, warm_up=3),
    "cpu": Effort(repeats=1, rounds=1, warm_up=0),
}
# X, dY, Y, a copy of X and a result, while it is timed.
MATRICES = 5
WAYS = ("forward", "backward")
RATIOS = tuple(f"{way}_{rival}_ratio" for rival in ("copy", "torch") for way in WAYS)


def run(options: SoftmaxOptions) -> Result:
    """Check and time every case.

    Raises:
        OutOfMemory: a matrix does not fit.
        WrongResult: a value is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    effort = EFFORT[device.torch.type]
    wanted = cases(options, device)
    doing = f"softmax of {options.size or ELEMENTS[device.torch.type]} elements"
    require_memory(device, doing=doing, on_device=MATRICES * max(case.bytes for case in wanted))
    with memory_errors(doing):
        found = [measure(case, device=device, effort=effort, seed=options.seed) for case in wanted]
    return summarise(found, device)


def cases(options: SoftmaxOptions, device: Device) -> list[Case]:
    """Return matrices of about as many elements each, whatever the length of their rows."""
    kind = device.torch.type
    size = options.size or ELEMENTS[kind]
    return [
        Case(rows=max(1, size // columns), columns=columns, dtype=dtype)
        for dtype in DTYPES[kind]
        for columns in lengths(options.columns, simulated=device.simulated)
    ]


def summarise(found: list[Measured], device: Device) -> Result:
    """Make the result: the worst ratio of all cases, and a table."""
    rows = [measured.row() for measured in found]
    metrics: dict[str, Scalar] = {name: min(float(row[name]) for row in rows) for name in RATIOS}
    for way in WAYS:
        worst = closest([measured.agreements[way] for measured in found])
        metrics |= {f"{way}_error": worst.error, f"{way}_error_bound": worst.bound}
    for measured in found:
        name = f"{measured.case.type_name}_{measured.case.columns}"
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
