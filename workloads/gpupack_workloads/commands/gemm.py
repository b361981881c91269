# SPDX-License-Identifier: Apache-2.0
"""`gemm`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.gemm.options import DTYPES, GemmOptions


@click.command("gemm")
@click.option(
    "--size",
    type=click.IntRange(1, 65536),
    help="Rows and columns of the matrices.  [default: 4096 and 8192 on a GPU, 96 on a CPU]",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="The one type.  [default: all but float32 on a GPU, float32 and float16 without]",
)
@common
def command(
    size: int | None, seed: int, *, dtype: str | None, require_gpu: bool, as_json: bool
) -> None:
    """Multiply matrices with our kernels in several types, checked by NumPy, against cuBLAS."""
    options = GemmOptions(size=size, seed=seed, dtype=dtype, require_gpu=require_gpu)
    finish("gemm", lambda module: module.run(options), as_json=as_json)
