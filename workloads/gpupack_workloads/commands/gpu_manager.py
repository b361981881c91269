# SPDX-License-Identifier: Apache-2.0
"""`gpu-manager`."""

from typing import Any

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.gpu_manager.options import LARGEST_SIZE, MAX_TASKS, GpuManagerOptions


@click.command("gpu-manager")
@click.option(
    "--size",
    type=click.IntRange(1, LARGEST_SIZE),
    help="Rows and columns of the products that are timed.  [default: 8192 on GPUs, 256 without]",
)
@click.option(
    "--tasks",
    type=click.IntRange(1, MAX_TASKS),
    help="Of products, timed on each GPU in a turn.  [default: 96 on GPUs, 8 without]",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Run tasks on all GPUs, a worker process each: checked, with faults survived, and timed."""
    options = GpuManagerOptions(**arguments)
    finish("gpu-manager", lambda module: module.run(options), as_json=as_json)
