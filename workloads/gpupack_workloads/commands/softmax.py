# SPDX-License-Identifier: Apache-2.0
"""`softmax`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.softmax.options import SoftmaxOptions


@click.command("softmax")
@click.option(
    "--size",
    type=click.IntRange(1, 2**33),
    help="Elements of a matrix.  [default: 2^28 on a GPU, 2^14 on a CPU]",
)
@click.option(
    "--columns",
    type=click.IntRange(1, 2**20),
    help="The length of a row.  [default: 1024 ... 32768, doubling; 1024 on a CPU]",
)
@common
def command(
    size: int | None, seed: int, *, columns: int | None, require_gpu: bool, as_json: bool
) -> None:
    """Compute softmax and its gradient, checked against NumPy, timed against torch and a copy."""
    options = SoftmaxOptions(size=size, seed=seed, columns=columns, require_gpu=require_gpu)
    finish("softmax", lambda module: module.run(options), as_json=as_json)
