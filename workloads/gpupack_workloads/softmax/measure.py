# SPDX-License-Identifier: Apache-2.0
"""Checks and times softmax of one length of rows in one type.

Bandwidths count bytes as the least that must move: forward one read and one write, backward two
reads and one write. Ours, torch's and the copy take turns on the same data, which is far larger
than any cache.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.agreement import Agreement, Values
from gpupack_workloads.kernels.loading import load
from gpupack_workloads.kernels.softmax.reference import compare_backward, compare_forward
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import seconds_in_turns

logger = logging.getLogger(__name__)

CHECKED_ELEMENTS = 1 << 21
MOVED = {"forward": 2, "backward": 3, "copy": 2}
# Spread of the values: a softmax of plain normal numbers is nearly flat.
SPREAD = 3


@dataclass(frozen=True)
class Case:
    """One matrix.

    Attributes:
        rows: how many.
        columns: the length of each.
        dtype: of the elements.
    """

    rows: int
    columns: int
    dtype: torch.dtype

    @property
    def type_name(self) -> str:
        """Return the type as NumPy calls it."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def bytes(self) -> int:
        """Return the size of one matrix."""
        return self.rows * self.columns * int(self.dtype.itemsize)


@dataclass(frozen=True)
class Effort:
    """How often to time: rounds of repeats, after a warm-up."""

    repeats: int
    rounds: int
    warm_up: int


@dataclass(frozen=True)
class Measured:
    """What was found in one case.

    Attributes:
        case: the matrix.
        agreements: of the forward and the backward pass.
        seconds: per call, by rival: forward, backward, torch_forward, torch_backward, copy.
    """

    case: Case
    agreements: dict[str, Agreement]
    seconds: dict[str, float]

    def gb_per_s(self, name: str) -> float:
        """Return a rival's bandwidth."""
        return MOVED[name.removeprefix("torch_")] * self.case.bytes / self.seconds[name] / 1e9

    def row(self) -> dict[str, Scalar]:
        """Return the case as a row of the result's table."""
        copy = self.gb_per_s("copy")
        row: dict[str, Scalar] = {"dtype": self.case.type_name, "columns": self.case.columns}
        for way in ("forward", "backward"):
            ours = self.gb_per_s(way)
            row[f"{way}_gb_per_s"] = round(ours, 1)
            row[f"{way}_copy_ratio"] = round(ours / copy, 4)
            row[f"{way}_torch_ratio"] = round(ours / self.gb_per_s(f"torch_{way}"), 4)
            row[f"{way}_error"] = self.agreements[way].error
            row[f"{way}_error_bound"] = self.agreements[way].bound
        return row | {"copy_gb_per_s": round(copy, 1)}


def measure(case: Case, *, device: Device, effort: Effort, seed: int) -> Measured:
    """Check, then time.

    Raises:
        WrongResult: a value is wrong; nothing about speed is reported then.
    """
    forward = load("softmax.launch", "forward")
    backward = load("softmax.launch", "backward")
    x, dy = (random_rows(case, device=device, seed=seed + i) for i in range(2))
    y = forward(x)
    agreements = check(case, x, dy, y, backward(y, dy))
    works: dict[str, Callable[[], object]] = {
        "forward": partial(forward, x),
        "torch_forward": partial(torch.softmax, x, -1),
        "backward": partial(backward, y, dy),
        "torch_backward": partial(torch._softmax_backward_data, dy, y, -1, case.dtype),  # noqa: SLF001  what autograd calls
        "copy": partial(torch.empty_like(x).copy_, x),
    }
    seconds = seconds_in_turns(
        works,
        device=device.torch,
        repeats=effort.repeats,
        rounds=effort.rounds,
        warm_up=effort.warm_up,
    )
    return Measured(case=case, agreements=agreements, seconds=seconds)


def random_rows(case: Case, *, device: Device, seed: int) -> torch.Tensor:
    """Return normal numbers; one seed gives one matrix per device."""
    chance = torch.Generator(device.torch).manual_seed(seed)
    shape = (case.rows, case.columns)
    rows = torch.randn(shape, generator=chance, device=device.torch, dtype=case.dtype)
    return rows * SPREAD


def check(
    case: Case, x: torch.Tensor, dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor
) -> dict[str, Agreement]:
    """Compare rows spread over the whole matrix, the last one among them, with NumPy's."""
    step = max(1, case.rows * case.columns // CHECKED_ELEMENTS)
    rows = slice(case.rows - 1, None, None) if step >= case.rows else slice(-1 % step, None, step)
    x64, dy64, y64, dx64 = (_numpy(matrix[rows]) for matrix in (x, dy, y, dx))
    agreements = {
        "forward": compare_forward(x=x64, y=y64, dtype=case.type_name),
        "backward": compare_backward(y=y64, dy=dy64, dx=dx64, dtype=case.type_name),
    }
    for way, agreement in agreements.items():
        _judge(case, way, agreement)
    return agreements


def _judge(case: Case, way: str, agreement: Agreement) -> None:
    what = f"{way} {case.rows} x {case.columns} {case.type_name}"
    logger.info("%s: error %.2e", what, agreement.error)
    if not agreement.holds:
        raise WrongResult(
            f"softmax {what} is wrong by {agreement.error:.3e} where rounding explains"
            f" {agreement.bound:.3e}"
        )


def _numpy(rows: torch.Tensor) -> Values:
    values: Values = rows.double().cpu().numpy()
    return values
