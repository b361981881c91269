# SPDX-License-Identifier: Apache-2.0
"""Checks and times softmax of one length of rows in one type.

Bandwidths count bytes as the least that must move: forward one read and one write, backward two
reads and one write. Ours, torch's and the copy take turns on the same data, which is far larger
than any cache.
"""

import logging
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_kernels.loading import load
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.reference.agreement import Agreement, Values, closest
from gpupack_workloads.reference.softmax import compare_backward, compare_forward
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import LatestResult, seconds_in_turns

logger = logging.getLogger(__name__)

CHECKED_ELEMENTS = 1 << 21
WAYS = ("forward", "backward")
MOVED = {"forward": 2, "backward": 3, "copy": 2}
# Spread of the values: a softmax of plain normal numbers is nearly flat.
SPREAD = 3


@dataclass(frozen=True)
class SoftmaxProblem:
    """One matrix.

    Attributes:
        rows: how many.
        columns: the length of each.
        dtype: type of the elements.
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
class Repetitions:
    """Numbers of timed calls: rounds of repeats, after a warm-up."""

    repeats: int
    rounds: int
    warm_up: int


@dataclass(frozen=True)
class Measured:
    """Findings of one problem.

    Attributes:
        problem: the matrix.
        agreements: agreements of the forward and the backward pass.
        seconds: per call, by rival: forward, backward, torch_forward, torch_backward, copy.
    """

    problem: SoftmaxProblem
    agreements: dict[str, Agreement]
    seconds: dict[str, float]

    def gb_per_s(self, name: str) -> float:
        """Return a rival's bandwidth."""
        return MOVED[name.removeprefix("torch_")] * self.problem.bytes / self.seconds[name] / 1e9

    def row(self) -> dict[str, Scalar]:
        """Return the problem as a row of the result's table."""
        copy = self.gb_per_s("copy")
        row: dict[str, Scalar] = {"dtype": self.problem.type_name, "columns": self.problem.columns}
        for way in WAYS:
            ours = self.gb_per_s(way)
            row[f"{way}_gb_per_s"] = round(ours, 1)
            row[f"{way}_copy_ratio"] = round(ours / copy, 4)
            row[f"{way}_torch_ratio"] = round(ours / self.gb_per_s(f"torch_{way}"), 4)
            row[f"{way}_error"] = self.agreements[way].error
            row[f"{way}_error_bound"] = self.agreements[way].bound
        return row | {"copy_gb_per_s": round(copy, 1)}


def measure(
    problem: SoftmaxProblem, *, device: Device, repetitions: Repetitions, seed: int
) -> Measured:
    """Check, time, and check what the last turns left.

    Raises:
        WrongResult: a value is wrong; nothing about speed is reported then.
    """
    forward = load("softmax.launch", "forward")
    backward = load("softmax.launch", "backward")
    x, dy = (random_rows(problem, device=device, seed=seed + i) for i in range(2))
    y = forward(x)
    first = check(problem, x, dy, y, backward(y, dy))
    # All results are kept, so that no rival's result gets the memory of ours.
    works: dict[str, LatestResult] = {
        "forward": LatestResult(partial(forward, x)),
        "torch_forward": LatestResult(partial(torch.softmax, x, -1)),
        "backward": LatestResult(partial(backward, y, dy)),
        "torch_backward": LatestResult(
            partial(torch._softmax_backward_data, dy, y, -1, problem.dtype)  # noqa: SLF001
        ),
        "copy": LatestResult(partial(torch.clone, x)),
    }
    for way in WAYS:
        works[way].spoil()
    seconds = seconds_in_turns(
        works,
        device=device.torch,
        repeats=repetitions.repeats,
        rounds=repetitions.rounds,
        warm_up=repetitions.warm_up,
    )
    last = {
        "forward": check_forward(problem, x, works["forward"].result),
        "backward": check_backward(problem, y, dy, works["backward"].result),
    }
    agreements = {way: closest([first[way], last[way]]) for way in WAYS}
    return Measured(problem=problem, agreements=agreements, seconds=seconds)


def random_rows(problem: SoftmaxProblem, *, device: Device, seed: int) -> torch.Tensor:
    """Return normal numbers; one seed gives one matrix per device."""
    chance = torch.Generator(device.torch).manual_seed(seed)
    shape = (problem.rows, problem.columns)
    rows = torch.randn(shape, generator=chance, device=device.torch, dtype=problem.dtype)
    return rows * SPREAD


def check(
    problem: SoftmaxProblem, x: torch.Tensor, dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor
) -> dict[str, Agreement]:
    """Compare rows spread over the whole matrix, the last one among them, with NumPy's.

    Raises:
        WrongResult: a value is further off than rounding explains.
    """
    return {"forward": check_forward(problem, x, y), "backward": check_backward(problem, y, dy, dx)}


def check_forward(problem: SoftmaxProblem, x: torch.Tensor, y: torch.Tensor) -> Agreement:
    """Compare rows of softmax(x)."""
    rows = checked_rows(problem)
    found = compare_forward(x=_numpy(x[rows]), y=_numpy(y[rows]), dtype=problem.type_name)
    return _judged(problem, "forward", found)


def check_backward(
    problem: SoftmaxProblem, y: torch.Tensor, dy: torch.Tensor, dx: torch.Tensor
) -> Agreement:
    """Compare rows of the gradient."""
    y64, dy64, dx64 = (_numpy(matrix[checked_rows(problem)]) for matrix in (y, dy, dx))
    found = compare_backward(y=y64, dy=dy64, dx=dx64, dtype=problem.type_name)
    return _judged(problem, "backward", found)


def checked_rows(problem: SoftmaxProblem) -> slice:
    """Return the rows that are checked, the last one among them.

    The step is odd: programs take rows by powers of two, and so each position of a row within its
    program is visited.
    """
    step = min(problem.rows * problem.columns // CHECKED_ELEMENTS | 1, problem.rows)
    return slice((problem.rows - 1) % step, None, step)


def _judged(problem: SoftmaxProblem, way: str, agreement: Agreement) -> Agreement:
    what = f"{way} {problem.rows} x {problem.columns} {problem.type_name}"
    logger.info("%s: error %.2e", what, agreement.error)
    if not agreement.holds:
        raise WrongResult(
            f"softmax {what} is wrong by {agreement.error:.3e} where rounding explains"
            f" {agreement.bound:.3e}"
        )
    return agreement


def _numpy(rows: torch.Tensor) -> Values:
    values: Values = rows.double().cpu().numpy()
    return values
