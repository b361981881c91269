# SPDX-License-Identifier: Apache-2.0
"""Runs copies, then the memory test, then products while memory holds a pattern, then the verdict.

The products heat the GPU while most of its memory holds random words, which must still be there
afterwards. Each part has its share of the requested time, and stops when that is over.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from gpupack_workloads.burn_in import copies, peers
from gpupack_workloads.burn_in.checks import Check, Observed, findings, judge, speeds_of
from gpupack_workloads.burn_in.compute import Multiply, Products
from gpupack_workloads.burn_in.copies import Copy, Sizes
from gpupack_workloads.burn_in.limits import Basis, BurnInOptions, basis_of, limits_for
from gpupack_workloads.burn_in.memory import LARGEST_BLOCK_BYTES, Memory, Touch
from gpupack_workloads.burn_in.patterns import Random, sequence
from gpupack_workloads.burn_in.sensors import NoSensors, Sensors, open_sensors
from gpupack_workloads.burn_in.verdict import summarise
from gpupack_workloads.devices import Device, choose_device, memory_errors
from gpupack_workloads.errors import OutOfMemory, WrongResult
from gpupack_workloads.memory import GIB, MIB
from gpupack_workloads.results import Result

logger = logging.getLogger(__name__)

MEMORY_ENDS = 0.52
"""Part of the time after which the patterns end; what is left after them is for products."""
COMPUTE_ENDS = 0.97
MIN_PATTERNS = 6
"""Address, random, a walking bit and their inverses are tried even in a short time."""
RESERVE_BYTES = 3 * 2**29
"""Left free for what libraries take on the side."""
SIMULATED_BYTES = 2**24
AMPERE = (8, 0)


def _multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> object:
    return torch.mm(a, b, out=out)


def _copy(to: torch.Tensor, source: torch.Tensor) -> object:
    return to.copy_(source, non_blocking=True)


def _leave(blocks: Sequence[torch.Tensor]) -> None:
    del blocks


@dataclass(frozen=True)
class Instruments:
    """Parts of the run; tests replace them with faulty ones."""

    multiply: Multiply = _multiply
    copy: Copy = _copy
    touch: Touch = _leave
    sensors: Callable[[str], Sensors] = open_sensors
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Plan:
    """Sizes for a kind of device.

    Attributes:
        seconds: for everything.
        copies: how much is copied.
        dtypes: types of the products; the first one's speed is judged.
        size: size of the matrices.
        batch_seconds: how long a batch of products takes about.
        block_bytes: bytes per block of the memory test.
    """

    seconds: float
    copies: Sizes
    dtypes: tuple[torch.dtype, ...]
    size: int
    batch_seconds: float
    block_bytes: int


def plan_for(device: Device, seconds: int | None) -> Plan:
    """Return what makes a GPU sweat, or what a CPU does in a few seconds."""
    if device.simulated:
        return Plan(
            seconds=seconds or 2,
            copies=Sizes(device_bytes=2**22, host_bytes=2**22, repeats=3),
            dtypes=(torch.float32, torch.float16),
            size=128,
            batch_seconds=0.05,
            block_bytes=2**20,
        )
    return Plan(
        seconds=seconds or 120,
        copies=Sizes(device_bytes=2**31, host_bytes=2**28, repeats=15),
        dtypes=_dtypes(device),
        size=8192,
        batch_seconds=0.5,
        block_bytes=LARGEST_BLOCK_BYTES,
    )


def _dtypes(device: Device) -> tuple[torch.dtype, ...]:
    """Return what tensor cores take; those before Ampere do not know bfloat16."""
    if torch.cuda.get_device_capability(device.torch) < AMPERE:
        return torch.float16, torch.float32
    return torch.bfloat16, torch.float16


def run(options: BurnInOptions, instruments: Instruments | None = None) -> Result:
    """Try one GPU and judge it.

    Raises:
        WrongResult: it is not healthy; the error carries the result, which says why.
        OutOfMemory: too little memory is free for a test that says anything.
    """
    device = choose_device(require_gpu=options.require_gpu)
    tools = instruments or Instruments()
    plan = plan_for(device, options.seconds)
    sensors = _sensors(device, tools)
    observed = Observed()
    start = tools.clock()
    with _device_failures(observed), memory_errors("the burn-in"):
        _observe(observed, _Bench(device.torch, plan, options, tools, sensors, start))
    checks, basis = _judge(observed, device, options)
    result = summarise(
        device,
        observed,
        checks,
        basis=basis,
        sensors=sensors.source,
        seconds=tools.clock() - start,
    )
    if wrong := findings(checks):
        raise WrongResult("unhealthy: " + "; ".join(map(str, wrong)), result)
    return result


def _judge(observed: Observed, device: Device, options: BurnInOptions) -> tuple[list[Check], Basis]:
    """Compare the observations with the limits, which may depend on the other workers' GPUs."""
    others = peers.exchange(peers.Peer(device.name, speeds_of(observed)), options.gang)
    of_peers = {} if device.simulated else peers.limits_from(others, device.name)
    simulated, replaced = device.simulated, options.limits
    limits = limits_for(device.name, simulated=simulated, replaced=replaced, of_peers=of_peers)
    basis = basis_of(device.name, simulated=simulated, replaced=replaced, of_peers=of_peers)
    return judge(observed, limits), basis


@dataclass(frozen=True)
class _Bench:
    """State that every part of the run needs."""

    device: torch.device
    plan: Plan
    options: BurnInOptions
    tools: Instruments
    sensors: Sensors
    start: float

    def before(self, part: float) -> bool:
        """Return whether this fraction of the time is not over."""
        return self.tools.clock() - self.start < part * self.plan.seconds


def _observe(observed: Observed, bench: _Bench) -> None:
    observed.before = bench.sensors.counters()
    try:
        _try_copies(observed, bench)
        products = _products(observed, bench)
        memory = _try_memory(observed, bench)
        retained = Random(bench.options.seed)
        memory.write(retained)
        _try_products(observed, bench, products)
        memory.compare(retained)
        observed.memory = memory.report()
    finally:
        observed.after = bench.sensors.counters()
        observed.xids = bench.sensors.xids()


def _try_copies(observed: Observed, bench: _Bench) -> None:
    measured = copies.measure(
        bench.device, bench.plan.copies, copy=bench.tools.copy, seed=bench.options.seed
    )
    for name, report in measured:
        logger.info("%s: %.1f GB/s", name, report.gb_per_s)
        observed.copies[name] = report
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()


def _try_memory(observed: Observed, bench: _Bench) -> Memory:
    memory = Memory(
        bench.device,
        tested_bytes=_testable_bytes(bench),
        block_bytes=bench.plan.block_bytes,
        touch=bench.tools.touch,
    )
    logger.info("memory: %.2f GiB are tested", memory.tested_bytes / GIB)
    for number, pattern in enumerate(sequence(bench.options.seed)):
        if number >= MIN_PATTERNS and not bench.before(MEMORY_ENDS):
            break
        memory.write(pattern)
        _sample(observed, bench)
        memory.compare(pattern)
        observed.memory = memory.report()
    logger.info("memory: %s", observed.memory)
    return memory


def _testable_bytes(bench: _Bench) -> int:
    if bench.device.type == "cpu":
        return SIMULATED_BYTES
    free, _ = torch.cuda.mem_get_info(bench.device)
    wanted = int(free * bench.options.memory_percent / 100)
    testable: int = min(wanted, free - RESERVE_BYTES)
    if testable < bench.plan.block_bytes:
        raise OutOfMemory(f"only {free / MIB:.0f} MiB of the GPU's memory are free")
    return testable


def _products(observed: Observed, bench: _Bench) -> dict[str, Products]:
    products = {}
    for dtype in bench.plan.dtypes:
        name = str(dtype).removeprefix("torch.")
        products[name] = Products(
            bench.device,
            dtype,
            size=bench.plan.size,
            seed=bench.options.seed,
            multiply=bench.tools.multiply,
        )
        observed.compute[name] = products[name].report()
    return products


def _try_products(observed: Observed, bench: _Bench, products: dict[str, Products]) -> None:
    """Take turns, two batches of the first type for one of the other; each at least once."""
    names = list(products)
    turns = [names[0], *names]
    counts = {name: _batch_size(products[name], bench.plan) for name in names}
    turn = 0
    while turn < len(turns) or bench.before(COMPUTE_ENDS):
        name = turns[turn % len(turns)]
        products[name].batch(counts[name], while_busy=lambda: _sample(observed, bench))
        observed.compute[name] = products[name].report()
        turn += 1
    for name in names:
        report = observed.compute[name]
        logger.info("%s: %d products, %d wrong", name, report.products, report.wrong_products)


def _batch_size(products: Products, plan: Plan) -> int:
    return max(1, round(plan.batch_seconds / products.seconds_each()))


def _sample(observed: Observed, bench: _Bench) -> None:
    sample = bench.sensors.sample()
    if sample is not None:
        observed.samples.append(sample)


def _sensors(device: Device, tools: Instruments) -> Sensors:
    if device.simulated:
        return NoSensors("no GPU")
    uuid = torch.cuda.get_device_properties(device.torch).uuid
    return tools.sensors(f"GPU-{uuid}")


@contextlib.contextmanager
def _device_failures(observed: Observed) -> Iterator[None]:
    """Keep what CUDA says when the device fails: that is a finding, and ends the run."""
    try:
        yield
    except RuntimeError as error:
        if "CUDA error" not in str(error):
            raise
        observed.failure = str(error).splitlines()[0]
        logger.exception("the device failed")
