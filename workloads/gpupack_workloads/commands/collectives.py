# SPDX-License-Identifier: Apache-2.0
"""`collectives`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.collectives.options import (
    DTYPES,
    LARGEST_BYTES,
    OPERATIONS,
    REDUCE_OPS,
    REDUCING,
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
@click.option(
    "-d",
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Type of the elements.",
)
@click.option(
    "-o",
    "--reduce-op",
    type=click.Choice(REDUCE_OPS),
    default="sum",
    show_default=True,
    help="What all-reduce, reduce-scatter and reduce do; avg takes NCCL.",
)
@click.option(
    "-n",
    "--iterations",
    type=click.IntRange(1, 100_000),
    help="Calls of a timed batch.  [default: by the size, 3 to 100 on GPUs, 1 on CPUs]",
)
@click.option(
    "-w",
    "--warmup",
    type=click.IntRange(0, 100_000),
    help="Calls before.  [default: 5 on GPUs, 1 on CPUs]",
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
    if options.reduce_op != "sum" and not set(options.operations) & set(REDUCING):
        raise click.BadParameter(f"--reduce-op is for {', '.join(REDUCING)}: add one of them")
    finish("collectives", in_gang(options), as_json=as_json)
