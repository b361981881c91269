# SPDX-License-Identifier: Apache-2.0
"""`tensorflow`."""

from typing import Any

import click

from gpupack_workloads.commands.common import FiniteRange, common, finish
from gpupack_workloads.tensorflow.options import MAX_IMAGES, SHAPES, TensorFlowOptions


@click.command("tensorflow")
@click.option(
    "--shape",
    type=click.Choice(SHAPES),
    default="mnist",
    show_default=True,
    help="Whose shape the made-up images have: 28 x 28 in grey, or 32 x 32 in colour.",
)
@click.option(
    "--images",
    type=click.IntRange(1, MAX_IMAGES),
    help="To learn from, over all workers.  [default: 65536 on GPUs, 1024 without]",
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 100_000),
    help="Train so often on all images.  [default: 8 on GPUs, 4 without]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 65536),
    help="Images per step and replica.  [default: 512 on GPUs, 32 without]",
)
@click.option(
    "--memory-growth/--no-memory-growth",
    default=True,
    show_default=True,
    help="Take a GPU's memory as it is needed, or all at once.",
)
@click.option(
    "--memory-fraction",
    type=FiniteRange(0, 1, min_open=True),
    help="Maximum fraction of a GPU's memory, or of the share's, that TensorFlow takes."
    "  [default: 0.8 of a share, no limit on a whole GPU]",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Train a CNN by TensorFlow over all GPUs of all workers, checked; in a separate image."""
    options = TensorFlowOptions(**arguments)
    finish("tensorflow", lambda module: module.run(options), as_json=as_json)
