# SPDX-License-Identifier: Apache-2.0
"""Checks and times every pair of this container's GPUs, both ways, or its one GPU with itself."""

import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from gpupack_workloads.cuda_compiler import Compiler, arch_of, choose_compiler
from gpupack_workloads.devices import Device, choose_device, kernel_errors, memory_errors
from gpupack_workloads.memory import GIB, require_memory
from gpupack_workloads.p2p.topology import Topology, read_topology
from gpupack_workloads.p2p_cpp import SOURCE, P2pCppOptions
from gpupack_workloads.p2p_cpp.checks import buffer_bytes
from gpupack_workloads.p2p_cpp.kernels import PeerKernels, compile_kernels
from gpupack_workloads.p2p_cpp.plan import sizes_of
from gpupack_workloads.p2p_cpp.simulated import simulate
from gpupack_workloads.p2p_cpp.summary import Row, ratios, summarise
from gpupack_workloads.results import Result

logger = logging.getLogger(__name__)

Numbers = tuple[int, int]

DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**20}
# GPU memory for checking, besides the buffers.
SLACK_BYTES = GIB
SAME = "same"


def run(options: P2pCppOptions) -> Result:
    """Compile the kernels, then check and time every pair.

    Raises:
        BadArgument: the source does not compile or fails, or there is no compiler.
        OutOfMemory: the buffers do not fit.
        WrongResult: a byte is wrong, or a number got lost.
    """
    device = choose_device(require_gpu=options.require_gpu)
    largest = sizes_of(options.size or DEFAULT_BYTES[device.torch.type])[-1]
    doing = f"copies of {largest} bytes"
    with memory_errors(doing):
        if device.simulated:
            return simulate(device, largest, options)
        numbers = pairs(torch.cuda.device_count())
        require_gpu_memory(numbers, largest, doing=doing)
        compiler = choose_compiler(options.compiler)
        with kernel_errors(options.source):
            rows = survey(numbers, compiler, largest, options)
    facts: Row = {
        "size_bytes": largest,
        "compiler": compiler.name,
        "architecture": arch_of(torch.cuda.get_device_capability(device.torch)),
    }
    return summarise(device, rows, largest=largest, facts=facts)


def pairs(count: int) -> list[Numbers]:
    """Return source and target of every pair of so many GPUs; one alone is paired with itself."""
    return list(itertools.permutations(range(count), 2)) or [(0, 0)]


def gpus_of(numbers: Sequence[Numbers]) -> list[int]:
    """Return every GPU once."""
    return sorted({index for pair in numbers for index in pair})


def require_gpu_memory(numbers: Sequence[Numbers], largest: int, *, doing: str) -> None:
    """Check before any work that each GPU has memory for the two buffers of each side on it."""
    for index in gpus_of(numbers):
        sides = max(pair.count(index) for pair in numbers)
        gpu = Device(torch.device("cuda", index), f"GPU {index}")
        needed = sides * 2 * buffer_bytes(largest) + SLACK_BYTES
        require_memory(gpu, doing=doing, on_device=needed)


def survey(
    numbers: Sequence[Numbers], compiler: Compiler, largest: int, options: P2pCppOptions
) -> list[Row]:
    """Return what was found of each pair, and a row for each size of copies."""
    kernels = load_kernels(gpus_of(numbers), compiler, options.source or SOURCE)
    topology = read_topology()
    rows: list[Row] = []
    for pair in numbers:
        rows += rows_of(pair, kernels, topology, largest=largest, seed=options.seed)
        logger.info("GPU %d to GPU %d: %s", *pair, rows[-1])
    return rows


def load_kernels(gpus: Sequence[int], compiler: Compiler, path: Path) -> dict[int, PeerKernels]:
    """Compile the kernels for each kind of GPU, and load them onto each."""
    cubins: dict[tuple[int, int], bytes] = {}
    kernels = {}
    for index in gpus:
        capability = torch.cuda.get_device_capability(index)
        if capability not in cubins:
            cubins[capability] = compile_kernels(compiler, path, capability)
        kernels[index] = PeerKernels(cubins[capability], path, index)
    return kernels


def rows_of(
    numbers: Numbers,
    kernels: Mapping[int, PeerKernels],
    topology: Topology,
    *,
    largest: int,
    seed: int,
) -> list[Row]:
    """Check and time one pair: what was found of it, then a row for each size."""
    from gpupack_workloads.p2p_cpp.latency import latencies  # noqa: PLC0415  imports Triton
    from gpupack_workloads.p2p_cpp.sides import open_pair  # noqa: PLC0415
    from gpupack_workloads.p2p_cpp.speeds import measure  # noqa: PLC0415  imports Triton

    with open_pair(*numbers, kernels=kernels, size=largest) as pair:
        row = facts_of(numbers, topology, direct=pair.direct)
        timed, row["checked_bytes"] = measure(pair, largest, seed)
        if pair.direct:
            row |= latencies(pair)
    # The next pair's buffers are not torch's.
    torch.cuda.empty_cache()
    return [row, *(each | ratios(each) for each in timed)]


def facts_of(numbers: Numbers, topology: Topology, *, direct: bool) -> Row:
    """Return what links a pair, and why it has no loads and stores where it has none."""
    source, target = numbers
    same = source == target
    uuids = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in numbers]
    row: Row = {
        "source": source,
        "target": target,
        "same_gpu": same,
        "link": SAME if same else topology.link(*uuids),
        "numa": "-".join(topology.node(uuid) for uuid in uuids),
        "peer_access": direct and not same,
    }
    if not direct:
        row["left_out"] = (
            f"no loads and stores: GPU {source} and GPU {target} cannot reach each other's memory,"
            " says cudaDeviceCanAccessPeer"
        )
        logger.warning("%s", row["left_out"])
    return row
