# SPDX-License-Identifier: Apache-2.0
"""`matmul`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.settings import Options


@click.command("matmul")
@click.option(
    "--size",
    type=click.IntRange(1, 65536),
    help="Rows and columns of the matrices.  [default: 8192 on a GPU, 512 on a CPU]",
)
@common
def command(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Multiply matrices with torch and with a Triton kernel, checked against NumPy."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish("matmul", lambda module: module.run(options), as_json=as_json)
