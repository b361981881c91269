# SPDX-License-Identifier: Apache-2.0
"""`thunderkittens`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.cuda_compiler import COMPILERS
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.thunderkittens import ThunderKittensOptions


@click.command("thunderkittens")
@click.option(
    "--size",
    type=click.IntRange(64, 65536),
    help="Rows and columns of the matrices, a multiple of 64.  [default: 4096 and 8192 on a GPU]",
)
@click.option(
    "--length",
    type=click.IntRange(1, 131072),
    help="Positions of the sequences.  [default: 4096 and 16384 on a GPU, 96 on a CPU]",
)
@click.option(
    "--heads",
    type=click.IntRange(1, 128),
    help="Heads of attention, each of 128.  [default: 16 on a GPU, 2 on a CPU]",
)
@click.option(
    "--compiler",
    type=click.Choice(COMPILERS),
    help="What compiles.  [default: nvcc where it is on PATH, else nvrtc]",
)
@common
def command(  # noqa: PLR0913  click hands over each option by its name
    size: int | None,
    length: int | None,
    heads: int | None,
    seed: int,
    *,
    compiler: str | None,
    require_gpu: bool,
    as_json: bool,
) -> None:
    """Run GEMM and attention in ThunderKittens' tile C++, against Triton, Gluon and libraries."""
    try:
        options = ThunderKittensOptions(
            size=size,
            length=length,
            heads=heads,
            seed=seed,
            compiler=compiler,
            require_gpu=require_gpu,
        )
    except BadArgument as error:
        raise click.UsageError(str(error)) from error
    finish("thunderkittens", lambda module: module.run(options), as_json=as_json)
