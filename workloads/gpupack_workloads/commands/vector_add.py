# SPDX-License-Identifier: Apache-2.0
"""`vector-add`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.settings import Options


@click.command("vector-add")
@click.option(
    "--size",
    type=click.IntRange(1, 2**33),
    help="Elements of each vector.  [default: 2^28 on a GPU, 2^18 on a CPU]",
)
@common
def command(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Add vectors with a Triton kernel, checked against NumPy, timed against torch and a copy."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish("vector-add", lambda module: module.run(options), as_json=as_json)
