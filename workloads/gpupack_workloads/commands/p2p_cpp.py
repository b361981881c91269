# SPDX-License-Identifier: Apache-2.0
"""`p2p-cpp`."""

from pathlib import Path

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.cuda_compiler import COMPILERS
from gpupack_workloads.p2p_cpp import P2pCppOptions
from gpupack_workloads.p2p_cpp.plan import MAX_BYTES, MIN_BYTES


@click.command("p2p-cpp")
@click.option(
    "--size",
    type=click.IntRange(MIN_BYTES, MAX_BYTES),
    help="Bytes of the largest copy.  [default: 1 GiB on GPUs, 1 MiB without]",
)
@click.option(
    "--source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="Kernels of yours to run instead, in CUDA C++, of the names and parameters of ours.",
)
@click.option(
    "--compiler",
    type=click.Choice(COMPILERS),
    help="What compiles.  [default: nvcc where it is on PATH, else nvrtc]",
)
@common
def command(
    size: int | None,
    seed: int,
    *,
    source: Path | None,
    compiler: str | None,
    require_gpu: bool,
    as_json: bool,
) -> None:
    """Copy between GPUs in CUDA C++: by the API, by loads and stores, through the host."""
    options = P2pCppOptions(
        size=size, seed=seed, source=source, compiler=compiler, require_gpu=require_gpu
    )
    finish("p2p-cpp", lambda module: module.run(options), as_json=as_json)
