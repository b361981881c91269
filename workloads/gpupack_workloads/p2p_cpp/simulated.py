# SPDX-License-Identifier: Apache-2.0
"""Without GPUs: kernels are compiled for one that is not there, and torch copies in their place.

What is verified then are torch's copies, whole and in the pieces of the way through the host, by
the same checks as GPUs. No speed is reported.
"""

import torch

from gpupack_workloads.cuda_compiler import ABSENT, arch_of, compiler_if_any
from gpupack_workloads.devices import Device, describe
from gpupack_workloads.memory import require_memory
from gpupack_workloads.p2p.copies import Copy
from gpupack_workloads.p2p.pattern import PIECE
from gpupack_workloads.p2p_cpp import SOURCE, P2pCppOptions
from gpupack_workloads.p2p_cpp.checks import CopyBuffers, buffer_bytes, check_edges
from gpupack_workloads.p2p_cpp.kernels import SIGNATURES, compile_kernels
from gpupack_workloads.p2p_cpp.plan import pieces_of
from gpupack_workloads.p2p_cpp.summary import WORKLOAD
from gpupack_workloads.results import Result, Scalar, headline

# Of each byte of the pattern while it is compared: its place in 32 bits, twice, and bytes.
PATTERN_BYTES = 12


def simulate(device: Device, largest: int, options: P2pCppOptions) -> Result:
    """Compile the kernels, and check torch's copies.

    Raises:
        BadArgument: the source does not compile, or there is no compiler for the user's.
        OutOfMemory: the buffers do not fit.
        WrongResult: a byte is wrong.
    """
    wanted = buffer_bytes(largest)
    needed = 2 * wanted + PATTERN_BYTES * min(largest, PIECE)
    require_memory(device, doing=f"copies of {largest} bytes", on_device=needed)
    compiler = compiler_if_any(options.compiler, needed=options.source is not None)
    if compiler is not None:
        compile_kernels(compiler, options.source or SOURCE, ABSENT)
    out, into = (torch.empty(wanted, dtype=torch.uint8) for _ in range(2))
    checked = sum(
        check_way(name, copy, (out, into), largest, options.seed)
        for name, copy in (("whole", whole), ("pieces", in_pieces))
    )
    compiled = len(SIGNATURES) if compiler else 0
    arch = arch_of(ABSENT)
    said = f"{compiled} kernels compiled for {arch}" if compiler else "no compiler, none compiled"
    metrics: dict[str, Scalar] = {
        "compiled": compiled,
        "compiler": compiler.name if compiler else "none",
        "architecture": arch,
        "checked_bytes": checked,
        "wrong_bytes": 0,
        "error": 0.0,
        "error_bound": 0.0,
        "size_bytes": largest,
    }
    return Result(
        workload=WORKLOAD,
        headline=headline(said, simulated=True),
        verified=True,
        simulated=True,
        metrics=metrics | describe(device),
    )


def check_way(
    name: str, copy: Copy, buffers: tuple[torch.Tensor, torch.Tensor], largest: int, seed: int
) -> int:
    """Check ragged copies and a large one; return how many bytes.

    Raises:
        WrongResult: a byte is wrong.
    """
    doing = f"{name}, by torch"
    checked = check_edges(doing, copy, buffers, seed=seed)
    lane = CopyBuffers.within(*buffers, largest)
    lane.fill(seed)
    lane.spoil()
    copy(lane.target, lane.source)
    return checked + lane.check(seed, doing=doing)


def whole(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy at once, as a kernel would."""
    target.copy_(source)


def in_pieces(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy in the pieces of the host's way."""
    for first, count in pieces_of(source.numel()):
        target[first : first + count].copy_(source[first : first + count])
