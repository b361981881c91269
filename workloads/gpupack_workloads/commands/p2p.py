# SPDX-License-Identifier: Apache-2.0
"""`p2p`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.settings import Options


@click.command("p2p")
@click.option(
    "--size",
    type=click.IntRange(8, 16 * 2**30),
    help="Bytes of a buffer.  [default: 1 GiB on GPUs, 1 MiB without]",
)
@common
def command(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Read and modify other GPUs' memory, checked byte by byte, timed for every pair."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish("p2p", lambda module: module.run(options), as_json=as_json)
