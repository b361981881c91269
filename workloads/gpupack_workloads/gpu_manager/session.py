# SPDX-License-Identifier: Apache-2.0
"""Runs the workload: checked tasks on every GPU, injected faults, then the manager's cost.

Times are the host's, from before the first task is handed over until the last result is there.
"""

import contextlib
import gc
import itertools
import logging
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from gpupack_workloads.devices import Device, choose_device, describe
from gpupack_workloads.errors import OutOfMemory, WorkloadError, WrongResult
from gpupack_workloads.gpu_manager import builtin
from gpupack_workloads.gpu_manager.manager import GpuManager, find_gpus
from gpupack_workloads.gpu_manager.options import GpuManagerOptions
from gpupack_workloads.gpu_manager.supervisor import Gpu
from gpupack_workloads.gpu_manager.task_queue import TaskError, TaskTimedOut
from gpupack_workloads.gpu_manager.worker import TORCH_BYTES, aligned
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference import gemm, vector_add
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import medians_in_turns

logger = logging.getLogger(__name__)

Row = dict[str, Scalar]

CHECKED_TASKS = 4
"""Of each kind, on each GPU."""
HANG_SECONDS = 1.0
WARM_UP = 4
"""A turn warms up with its number of tasks divided by this."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Plan:
    """Sizes for a kind of device.

    Attributes:
        elements: length of vectors that are added and checked.
        rows: and columns of matrices that are multiplied and checked.
        size: rows and columns of products that are timed,
        dtype: their type,
        count: how many of them are a task, and
        tasks: how many tasks a GPU has in a turn.
        empty_tasks: in a turn that times the manager itself.
        round_trips: number of tasks, each awaited before the next one is handed over.
        rounds: number of turns.
    """

    elements: int
    rows: int
    size: int
    dtype: torch.dtype
    count: int
    tasks: int
    empty_tasks: int
    round_trips: int
    rounds: int

    @property
    def pool_bytes(self) -> int:
        """Return what the largest task takes."""
        return 3 * max(self.matrix_bytes, *map(aligned, self.checked_bytes))

    @property
    def matrix_bytes(self) -> int:
        """Return the bytes of one of the matrices of timed products."""
        return aligned(self.dtype.itemsize * self.size**2)

    @property
    def checked_bytes(self) -> tuple[int, int]:
        """Return the bytes of a vector, and of a matrix, that are checked element by element."""
        return FLOAT_BYTES * self.elements, FLOAT_BYTES * self.rows**2


def plan_for(device: Device, options: GpuManagerOptions) -> Plan:
    """Return tasks of some 20 ms on a GPU, or small ones."""
    if device.simulated:
        size, tasks = options.size or 256, options.tasks or 8
        return Plan(5003, 67, size, torch.float32, 1, tasks, 2000, 100, 1)
    size, tasks = options.size or 8192, options.tasks or 96
    return Plan(2**20 + 3, 515, size, torch.bfloat16, 10, tasks, 10_000, 1000, 3)


def survey(options: GpuManagerOptions) -> Result:
    """Check tasks on every GPU, then faults, then time it all.

    Raises:
        NoSuchDevice: a GPU is required and there is none.
        OutOfMemory: a pool does not fit.
        WrongResult: a task's result is wrong, or a fault was not limited to its task.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(device, options)
    gpus = find_gpus()
    for gpu in gpus:
        require_memory(
            Device(torch.device(gpu.device), str(gpu)),
            doing=f"a pool of {plan.pool_bytes} bytes",
            on_device=plan.pool_bytes + (0 if device.simulated else TORCH_BYTES),
        )
    try:
        with GpuManager(gpus, pool_bytes=plan.pool_bytes) as manager:
            manager.wait_until_ready()
            return summarise(device, plan, measure(manager, gpus, plan, options.seed))
    except TaskError as error:
        raise WorkloadError(str(error)) from error


def measure(manager: GpuManager, gpus: Sequence[Gpu], plan: Plan, seed: int) -> Row:
    """Return everything that was found."""
    found: Row = {"gpus": len(gpus)}
    agreement = closest([check(manager, gpu, plan, seed) for gpu in gpus])
    found |= {"error": agreement.error, "error_bound": agreement.bound}
    found |= refused(manager, plan)
    found |= survived(manager, gpus, plan, seed)
    found |= cost(manager, gpus[0], plan)
    return found | scaling(manager, gpus, plan, seed)


def check(manager: GpuManager, gpu: Gpu, plan: Plan, seed: int) -> Agreement:
    """Compare sums and products of a GPU's tasks with NumPy's, element by element.

    Raises:
        WrongResult: one is further off than rounding explains.
    """
    found = []
    for number in range(CHECKED_TASKS):
        chance = np.random.default_rng((seed, gpu.index, number))
        x, y = chance.standard_normal((2, plan.elements), dtype=np.float32)
        a, b = chance.standard_normal((2, plan.rows, plan.rows), dtype=np.float32)
        z, c = (future.result() for future in (add(manager, gpu, x, y), mul(manager, gpu, a, b)))
        x, y, z, a, b, c = (np.asarray(each, np.float64) for each in (x, y, z, a, b, c))
        found.append(vector_add.compare(x=x, y=y, z=z, dtype="float32"))
        found.append(gemm.compare(a=a, b=b, c=c, dtype="float32"))
    return right(closest(found), f"{gpu}: a task's result")


def add(manager: GpuManager, gpu: Gpu, x: builtin.Floats, y: builtin.Floats) -> Future[Any]:
    """Have two vectors added."""
    size = aligned(x.nbytes)
    return manager.submit(
        builtin.vector_add, x, y, gpu=gpu.index, memory_bytes=3 * size, result_bytes=size
    )


def mul(manager: GpuManager, gpu: Gpu, a: builtin.Floats, b: builtin.Floats) -> Future[Any]:
    """Have two square matrices multiplied."""
    size = aligned(a.nbytes)
    return manager.submit(
        builtin.matmul, a, b, gpu=gpu.index, memory_bytes=3 * size, result_bytes=size
    )


def right(agreement: Agreement, what: str) -> Agreement:
    """Return an agreement that holds.

    Raises:
        WrongResult: it does not.
    """
    if not agreement.holds:
        raise WrongResult(
            f"{what} is wrong by {agreement.error:.3e} where rounding explains"
            f" {agreement.bound:.3e}"
        )
    return agreement


def refused(manager: GpuManager, plan: Plan) -> Row:
    """Make sure that a task gets no more memory than its quota.

    Raises:
        WrongResult: it does.
    """
    quota = plan.pool_bytes // 2
    task = manager.submit(builtin.take_too_much, quota + 1, memory_bytes=quota)
    with contextlib.suppress(OutOfMemory):
        task.result()
        raise WrongResult(f"a task got {quota + 1} bytes of a quota of {quota}")
    return {"pool_bytes": plan.pool_bytes}


def survived(manager: GpuManager, gpus: Sequence[Gpu], plan: Plan, seed: int) -> Row:
    """Let a task hang on the first GPU; others go on, and so does that GPU afterwards.

    Raises:
        WrongResult: the task was not ended, or a result is wrong during the hang or afterwards.
    """
    began = time.perf_counter()
    task = manager.submit(builtin.hang, gpu=gpus[0].index, seconds=HANG_SECONDS)
    others = itertools.cycle(gpus[1:])
    checks = 0
    while len(gpus) > 1 and not task.done():
        check(manager, next(others), plan, seed)
        checks += not task.done()
    with contextlib.suppress(TaskTimedOut):
        task.result()
        raise WrongResult("a task that hangs came to an end")
    timed_out = time.perf_counter() - began
    check(manager, gpus[0], plan, seed)
    if len(gpus) > 1 and not checks:
        raise WrongResult("while a task hung on one GPU, no other GPU did anything")
    return {
        "time_out_seconds": round(timed_out, 3),
        "recovery_seconds": round(time.perf_counter() - began - timed_out, 3),
        "checks_during_hang": checks,
    }


def cost(manager: GpuManager, gpu: Gpu, plan: Plan) -> Row:
    """Return what a task costs that does nothing: one of many that are queued, and one alone."""
    turns = {
        "overhead_us": partial(queued, manager, gpu, plan.empty_tasks),
        "round_trip_us": partial(awaited, manager, gpu, plan.round_trips),
    }
    # What is there already, torch above all, is not for the collector to look through each time.
    gc.collect()
    gc.freeze()
    try:
        seconds = medians_in_turns(turns, rounds=plan.rounds)
    finally:
        gc.unfreeze()
    found: Row = {name: round(each * 1e6, 2) for name, each in seconds.items()}
    return found


def queued(manager: GpuManager, gpu: Gpu, count: int) -> float:
    """Return the seconds of one of so many tasks, after a warm-up; all wait in the queue."""
    for each in (count // WARM_UP, count):
        began = time.perf_counter()
        tasks = [manager.submit(builtin.nothing, gpu=gpu.index) for _ in range(each)]
        # One GPU's tasks end in their order; waiting for each would wake this thread each time.
        tasks[-1].result()
        seconds = time.perf_counter() - began
        for task in tasks:
            task.result()
    return seconds / count


def awaited(manager: GpuManager, gpu: Gpu, count: int) -> float:
    """Return the median seconds of a task that nothing else is queued with."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        manager.submit(builtin.nothing, gpu=gpu.index).result()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def scaling(manager: GpuManager, gpus: Sequence[Gpu], plan: Plan, seed: int) -> Row:
    """Return how much faster all GPUs are than the fastest of them alone, at independent tasks.

    Raises:
        WrongResult: a task's product is wrong.
    """
    seeds = iter(range(seed, 2**64))
    agreements: list[Agreement] = []
    turn = partial(multiply, manager, plan, seeds=seeds, found=agreements)
    turns = {gpu.index: partial(turn, gpu.index, plan.tasks) for gpu in gpus}
    every = -1
    if len(gpus) > 1:
        turns[every] = partial(turn, None, plan.tasks * len(gpus))
    seconds = medians_in_turns(turns, rounds=plan.rounds)
    alone = min(seconds[gpu.index] for gpu in gpus)
    together = seconds.get(every, alone)
    tera = 2 * plan.size**3 * plan.count * plan.tasks / 1e12
    agreement = closest(agreements)
    speedup: Row = {}
    if len(gpus) > 1:
        speedup["speedup_ratio"] = round(len(gpus) * alone / together, 4)
    return speedup | {
        "tasks_per_s": round(len(gpus) * plan.tasks / together, 2),
        "tflops": round(len(gpus) * tera / together, 3),
        "one_gpu_tflops": round(tera / alone, 3),
        "products_error": agreement.error,
        "products_error_bound": agreement.bound,
    }


def multiply(
    manager: GpuManager,
    plan: Plan,
    gpu: int | None,
    tasks: int,
    *,
    seeds: Iterator[int],
    found: list[Agreement],
) -> float:
    """Return the seconds of so many tasks, after a warm-up, on one GPU or on all.

    Raises:
        WrongResult: a product is wrong.
    """
    for each in (max(1, tasks // WARM_UP), tasks):
        began = time.perf_counter()
        futures = [
            manager.submit(
                *(builtin.products, plan.size, plan.dtype, plan.count, next(seeds)),
                gpu=gpu,
                memory_bytes=3 * plan.matrix_bytes,
            )
            for _ in range(each)
        ]
        agreements = [future.result() for future in futures]
        seconds = time.perf_counter() - began
        found.append(right(closest(agreements), "a product that was timed"))
    return seconds


def summarise(device: Device, plan: Plan, found: Row) -> Result:
    """Make the result out of what was found."""
    order = ("speedup_ratio", "overhead_us", "round_trip_us")
    metrics = {name: found[name] for name in order if name in found} | found
    metrics |= {
        "size": plan.size,
        "dtype": str(plan.dtype).removeprefix("torch."),
        "tasks": plan.tasks,
        "products_per_task": plan.count,
        "empty_tasks": plan.empty_tasks,
    }
    return Result(
        workload="gpu-manager",
        headline=headline(figure(metrics), simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
    )


def figure(metrics: Row) -> str:
    """Return the headline's figure."""
    cost_of_one = f"{float(metrics['overhead_us']):.1f} us per task"
    if "speedup_ratio" not in metrics:
        return f"{cost_of_one}, 1 GPU"
    return f"{float(metrics['speedup_ratio']):.2f} x one GPU on {metrics['gpus']}, {cost_of_one}"
