# SPDX-License-Identifier: Apache-2.0
"""`collectives`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.collectives.options import (
    LARGEST_BYTES,
    OPERATIONS,
    SMALLEST_BYTES,
    CollectivesOptions,
)
from gpupack_workloads.commands.common import common, finish, in_gang

SIZES = click.IntRange(SMALLEST_BYTES, LARGEST_BYTES)


@click.command("collectives")
@click.option(
    "--size",
    type=SIZES,
    help="Bytes of the largest buffer.  [default: 4 GiB on GPUs, 64 KiB on CPUs]",
)
@click.option("--smallest", type=SIZES, default=SMALLEST_BYTES, help="Bytes of the first buffer.")
@click.option(
    "--operation",
    "operations",
    type=click.Choice(OPERATIONS),
    multiple=True,
    default=OPERATIONS,
    help="Which to measure; may be repeated.  [default: all]",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for figures; needs matplotlib.",
)
@click.option("--tune", is_flag=True, help="Try NCCL's settings against its defaults, too.")
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Check and time collective operations over all processes of all workers."""
    options = CollectivesOptions(**arguments)
    if options.size is not None and options.size < options.smallest:
        raise click.BadParameter(f"--size {options.size} is below --smallest {options.smallest}")
    if options.tune and "all-reduce" not in options.operations:
        raise click.BadParameter("--tune compares all-reduces: add --operation all-reduce")
    finish("collectives", in_gang(options), as_json=as_json)
