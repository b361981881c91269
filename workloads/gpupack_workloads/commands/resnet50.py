# SPDX-License-Identifier: Apache-2.0
"""`resnet50`."""

from typing import Any

import click

from gpupack_workloads.commands.common import common, finish, in_gang
from gpupack_workloads.resnet50.options import COMPILE_MODES, COUPLINGS, DTYPES, FLAT, ResNetOptions


@click.command("resnet50")
@click.option(
    "--size",
    type=click.IntRange(32, 1024),
    help="An image's edge in pixels.  [default: 224 on GPUs, 32 on CPUs]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(2, 8192),
    help="Images per process and step.  [default: 1024 on GPUs of 128 GiB, else what"
    " fits; 4 on CPUs]",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 100_000),
    help="Timed steps.  [default: 40 on GPUs, 3 on CPUs]",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="What the network computes in; parameters stay fp32.  [default: bf16; fp32 on CPUs]",
)
@click.option(
    "--channels-last/--channels-first",
    default=True,
    help="Memory order of images and activations.  [default: channels-last]",
)
@click.option(
    "--compile",
    "compile_mode",
    type=click.Choice(COMPILE_MODES),
    help="torch.compile's mode.  [default: default; off on CPUs]",
)
@click.option(
    "--coupling",
    type=click.Choice(COUPLINGS),
    default=FLAT,
    show_default=True,
    help="How ranks sum gradients: in a few flat buffers, or by torch's DDP.",
)
@click.option(
    "--bucket-mib",
    type=click.IntRange(1, 1024),
    default=50,
    show_default=True,
    help="Gradients summed by one all-reduce.",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Train ResNet-50 on synthetic ImageNet data over all GPUs of all workers."""
    options = ResNetOptions(**arguments)
    finish("resnet50", in_gang(options), as_json=as_json)
