# SPDX-License-Identifier: Apache-2.0
"""`train-cnn`."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpupack_workloads.commands.common import FiniteRange, common, finish, in_gang
from gpupack_workloads.train_cnn.options import DATASETS, OPTIMIZERS, SHAPES, SYNTHETIC, CnnOptions

OF_EPOCHS = ("epochs", "optimizer", "learning_rate")
OF_TECHNIQUES = ("steps", "accumulate")
OF_FILES = ("data", "checksums")


@click.command("train-cnn")
@click.option(
    "--dataset",
    type=click.Choice(DATASETS),
    default=SYNTHETIC,
    show_default=True,
    help="Which images; real ones take --data.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of real images, as torchvision's data sets keep them; nothing is downloaded.",
)
@click.option(
    "--checksums/--no-checksums",
    default=True,
    show_default=True,
    help="Whether files must be the published ones, where torchvision knows their MD5 sums.",
)
@click.option(
    "--shape",
    type=click.Choice(SHAPES),
    default="cifar10",
    show_default=True,
    help="Whose shape synthetic images have: 28 x 28 in grey, or 32 x 32 in colour.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 100_000),
    help="Train so often on all images, over all workers.  [default: 10 for real images]",
)
@click.option(
    "--optimizer",
    type=click.Choice(OPTIMIZERS),
    default="adam",
    show_default=True,
    help="Of a training by epochs.",
)
@click.option(
    "--learning-rate",
    type=FiniteRange(0, 1000, min_open=True),
    help="Of a training by epochs.  [default: the optimizer's own, scaled with the batch]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(2, 65536),
    help="Images per step and process.  [default: by epochs 128; of techniques 1024 on a GPU,"
    " 32 on a CPU]",
)
@click.option(
    "--steps",
    type=click.IntRange(10, 1_000_000),
    help="Compare techniques by so many steps of each.  [default: for synthetic images 100 on a"
    " GPU, 16 on a CPU]",
)
@click.option(
    "--accumulate",
    type=click.IntRange(2, 1024),
    default=4,
    show_default=True,
    help="Parts of a batch whose gradients are added up, among the techniques; must divide it.",
)
@common
@click.pass_context
def command(context: click.Context, /, *, as_json: bool, **arguments: Any) -> None:
    """Train a CNN: real images by epochs, or synthetic ones technique by technique.

    Techniques are cudnn.benchmark, AMP, channels-last and accumulation, on one GPU. A training by
    epochs (--dataset mnist or cifar10, or --epochs) takes all GPUs of all workers.
    """
    options = CnnOptions(**arguments)
    if wrong := misfit(options, given(context)):
        raise click.UsageError(wrong)
    if options.by_epochs:
        finish("train-cnn", in_gang(options), as_json=as_json)
    else:
        finish("train-cnn", lambda module: module.run(options), as_json=as_json)


def given(context: click.Context) -> set[str]:
    """Return which arguments a user has named."""
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def misfit(options: CnnOptions, given: set[str]) -> str | None:
    """Return which arguments do not go together, and what to do; None: they do."""
    return of_images(options, given) or of_training(options, given)


def of_images(options: CnnOptions, given: set[str]) -> str | None:
    """Return what does not fit the data set."""
    if options.made_up:
        extra = flags(OF_FILES, given)
        none = "synthetic images have no files; name the real ones by --dataset"
        return f"{extra}: {none}" if extra else None
    if options.data is None:
        return f"--dataset {options.dataset} needs --data, the folder that holds it"
    if "shape" in given:
        return f"--shape is for synthetic images; {options.dataset} has its own"
    return None


def of_training(options: CnnOptions, given: set[str]) -> str | None:
    """Return what does not fit a training by epochs, or a comparison of techniques."""
    size, parts = options.batch_size, options.accumulate
    if options.by_epochs:
        extra = flags(OF_TECHNIQUES, given)
        none = "a training by epochs has no techniques; leave out --epochs, or this"
        return f"{extra}: {none}" if extra else None
    if extra := flags(OF_EPOCHS, given):
        return f"{extra}: only a training by epochs has it; set --epochs"
    if size is not None and size % parts:
        return f"--accumulate {parts} does not divide --batch-size {size}"
    return None


def flags(names: tuple[str, ...], given: set[str]) -> str:
    """Return those of some arguments that were given, as a user writes them."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if name in given)
