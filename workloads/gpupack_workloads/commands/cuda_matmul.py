# SPDX-License-Identifier: Apache-2.0
"""`cuda-matmul`."""

from pathlib import Path

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.cuda_compiler import COMPILERS
from gpupack_workloads.cuda_matmul import DTYPES, CudaMatmulOptions


@click.command("cuda-matmul")
@click.option(
    "--size",
    type=click.IntRange(1, 65536),
    help="Rows and columns of the matrices.  [default: 8192 on a GPU, 96 on a CPU]",
)
@click.option(
    "--source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="A kernel of yours to run instead, in CUDA C++ with the signature of ours.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Type of A and B of --source.  [default: float32]",
)
@click.option(
    "--compiler",
    type=click.Choice(COMPILERS),
    help="What compiles.  [default: nvcc where it is on PATH, else nvrtc]",
)
@common
def command(  # noqa: PLR0913  click hands over each option by its name
    size: int | None,
    seed: int,
    *,
    source: Path | None,
    dtype: str | None,
    compiler: str | None,
    require_gpu: bool,
    as_json: bool,
) -> None:
    """Multiply matrices in CUDA C++, one thread per element to tensor cores, against cuBLAS."""
    if dtype is not None and source is None:
        raise click.UsageError("--dtype is of the operands of --source FILE, which is missing")
    options = CudaMatmulOptions(
        size=size,
        seed=seed,
        source=source,
        dtype=dtype or "float32",
        compiler=compiler,
        require_gpu=require_gpu,
    )
    finish("cuda-matmul", lambda module: module.run(options), as_json=as_json)
