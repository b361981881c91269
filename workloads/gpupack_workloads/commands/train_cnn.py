# SPDX-License-Identifier: Apache-2.0
"""`train-cnn`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.train_cnn.options import DATA, CnnOptions


@click.command("train-cnn")
@click.option(
    "--data",
    type=click.Choice(DATA),
    default="cifar10",
    show_default=True,
    help="Whose images: 28 x 28 in grey, or 32 x 32 in colour.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Real data: MNIST's IDX files, or CIFAR-10's batches (python or binary version)."
    "  [default: made up]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(2, 65536),
    help="Images per step.  [default: 1024 on a GPU, 32 on a CPU]",
)
@click.option(
    "--steps",
    type=click.IntRange(10, 1_000_000),
    help="Steps of each technique.  [default: 100 on a GPU, 16 on a CPU]",
)
@click.option(
    "--accumulate",
    type=click.IntRange(2, 1024),
    default=4,
    show_default=True,
    help="Parts of a batch whose gradients are added up; must divide the batch.",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Train a CNN, technique by technique: cudnn.benchmark, AMP, channels-last, accumulation."""
    options = CnnOptions(**arguments)
    size, parts = options.batch_size, options.accumulate
    if size is not None and size % parts:
        raise click.UsageError(f"--accumulate {parts} does not divide --batch-size {size}")
    finish("train-cnn", lambda module: module.run(options), as_json=as_json)
