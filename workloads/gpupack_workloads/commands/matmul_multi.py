# SPDX-License-Identifier: Apache-2.0
"""`matmul-multi`."""

from typing import Any

import click

from gpupack_workloads.commands.common import common, finish, in_gang
from gpupack_workloads.matmul_multi.options import CHUNKS, LAYOUTS, WIDTHS, MatmulMultiOptions


@click.command("matmul-multi")
@click.option(
    "--size",
    type=click.IntRange(1, 131072),
    help="Rows and columns of the matrices.  [default: 32768 on GPUs, 256 on CPUs]",
)
@click.option(
    "--layout",
    "layouts",
    type=click.Choice(LAYOUTS),
    multiple=True,
    default=LAYOUTS,
    help="How to cut the product; may be repeated.  [default: all]",
)
@click.option(
    "--chunks",
    type=click.IntRange(1, 256),
    multiple=True,
    default=CHUNKS,
    help="Pieces of a travelling block; may be repeated, the fastest is kept.  [default: 1 4]",
)
@click.option(
    "--width",
    "widths",
    type=click.IntRange(1, 131072),
    multiple=True,
    default=WIDTHS,
    help="Columns of C that one product computes; may be repeated.  [default: 1024 32768]",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Multiply matrices over all GPUs of all workers, compared with one GPU."""
    options = MatmulMultiOptions(**arguments)
    finish("matmul-multi", in_gang(options), as_json=as_json)
