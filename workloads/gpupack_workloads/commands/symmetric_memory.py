# SPDX-License-Identifier: Apache-2.0
"""`symmetric-memory`."""

from typing import Any

import click

from gpupack_workloads.commands.common import common, finish, in_gang
from gpupack_workloads.symmetric_memory.options import (
    DTYPES,
    LARGEST_BYTES,
    PARTS,
    SMALLEST_BYTES,
    SymmetricMemoryOptions,
)


@click.command("symmetric-memory")
@click.option(
    "--size",
    type=click.IntRange(SMALLEST_BYTES, LARGEST_BYTES),
    help="Bytes of the largest put and get.  [default: 1 GiB on GPUs, 32 KiB on CPUs]",
)
@click.option(
    "--part",
    "parts",
    type=click.Choice(PARTS),
    multiple=True,
    default=PARTS,
    help="What to measure; may be repeated.  [default: all]",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 1_048_576),
    multiple=True,
    help="Of the matrix that is gathered, all ranks' together; may be repeated."
    "  [default: 512 to 32768 on GPUs, 64 and 192 on CPUs]",
)
@click.option(
    "--depth",
    type=click.IntRange(1, 131072),
    help="Its columns.  [default: 4096 on GPUs, 32 on CPUs]",
)
@click.option(
    "--columns",
    type=click.IntRange(1, 1_048_576),
    help="Of the product, all ranks' together.  [default: 14336 on GPUs, 96 on CPUs]",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default=DTYPES[0],
    show_default=True,
    help="Of the product on GPUs.",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Put to and get from other GPUs' memory, and multiply while gathering, against NCCL."""
    options = SymmetricMemoryOptions(**arguments)
    finish("symmetric-memory", in_gang(options), as_json=as_json)
