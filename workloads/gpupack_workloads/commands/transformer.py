# SPDX-License-Identifier: Apache-2.0
"""`transformer`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.commands.common import common, finish, in_gang
from gpupack_workloads.transformer.options import (
    DTYPES,
    KERNELS,
    MAX_CHECK_STEPS,
    PARALLEL,
    TransformerOptions,
)


class Folder(click.Path):
    """A folder's name, which must not be empty: for Python that is the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty name, as an unset variable leaves it."""
        if value == "":
            self.fail("the folder's name is empty", param, ctx)
        return super().convert(value, param, ctx)


@click.command("transformer")
@click.option(
    "--layers", type=click.IntRange(1, 256), help="Blocks.  [default: 12 on GPUs, 2 on CPUs]"
)
@click.option(
    "--width",
    type=click.IntRange(64, 32768),
    help="Numbers per token.  [default: 2048 on GPUs, 128 on CPUs]",
)
@click.option(
    "--heads",
    type=click.IntRange(1, 512),
    help="Of the queries; width / heads must be 64 or 128.  [default: 16 on GPUs, 2 on CPUs]",
)
@click.option(
    "--kv-heads",
    type=click.IntRange(1, 512),
    help="Of keys and values; must divide the heads.  [default: 4 on GPUs, 2 on CPUs]",
)
@click.option(
    "--sequence",
    type=click.IntRange(16, 131072),
    help="Tokens in a row; a multiple of 16.  [default: 4096 on GPUs, 16 on CPUs]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 65536),
    help="Rows per step, of all ranks together.  [default: 24 on GPUs, 6 on CPUs]",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 10_000_000),
    help="Of training, over all attempts.  [default: 10 on GPUs, 2 on CPUs]",
)
@click.option(
    "--accumulate",
    type=click.IntRange(1, 4096),
    help="Parts of each rank's share of a batch whose gradients are added up."
    "  [default: of 24576 tokens at most]",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Of products and activations; parameters stay fp32.  [default: bf16; fp32 on CPUs]",
)
@click.option(
    "--recompute/--keep",
    default=False,
    help="Activation checkpointing: keep the inputs of blocks only.  [default: keep]",
)
@click.option(
    "--compile/--no-compile",
    "compiled",
    default=None,
    help="Compile the operations between the products.  [default: on GPUs]",
)
@click.option(
    "--kernels",
    type=click.Choice(KERNELS),
    default="ours",
    show_default=True,
    help="Whose attention, softmax and products; with `all` norms, rotations, gates and the loss"
    " are ours as well.",
)
@click.option(
    "--parallel",
    type=click.Choice(PARALLEL),
    default="ddp",
    show_default=True,
    help="Replicas, shards of parameters, shards of products, or stages of layers.",
)
@click.option(
    "--check-steps",
    type=click.IntRange(0, MAX_CHECK_STEPS),
    help="Steps compared with a single process and torch's kernels; less than 3 leave the result"
    " unverified.  [default: 4 on GPUs, 3 on CPUs]",
)
@click.option(
    "--checkpoint",
    type=Folder(file_okay=False, path_type=Path),
    help="A folder that all workers share: training resumes from the latest checkpoint in it.",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1, 1_000_000),
    default=10,
    show_default=True,
    help="Steps from one checkpoint to the next.",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Train a language model by DDP, FSDP2, tensor or pipeline parallelism, with checkpoints."""
    options = TransformerOptions(**arguments)
    finish("transformer", in_gang(options), as_json=as_json)
