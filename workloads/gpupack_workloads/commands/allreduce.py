# SPDX-License-Identifier: Apache-2.0
"""`allreduce`."""

import click

from gpupack_workloads.commands.common import common, finish, in_gang
from gpupack_workloads.settings import Options


@click.command("allreduce")
@click.option(
    "--size",
    type=click.IntRange(8, 16 * 2**30),
    help="Bytes of the largest buffer.  [default: 1 GiB on GPUs, 4 MiB on CPUs]",
)
@common
def command(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Sum buffers over all processes of all workers, checked exactly."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish("allreduce", in_gang(options), as_json=as_json)
