# SPDX-License-Identifier: Apache-2.0
"""`attention`."""

import click

from gpupack_workloads.attention.options import DENSE, DIMENSIONS, LAYOUTS, AttentionOptions
from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.errors import BadArgument


@click.command("attention")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=DENSE,
    show_default=True,
    help="Sequences of one length; of several, packed; one token each over pages.",
)
@click.option(
    "--size",
    type=click.IntRange(1, 131072),
    help="Length of queries and keys, or of the longest sequence."
    "  [default: 16384 on a GPU (varlen 4096, paged 8192), 96 on a CPU]",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1024),
    help="[default: 1; sequences on a GPU: varlen 16, paged 32]",
)
@click.option(
    "--heads", type=click.IntRange(1, 256), help="[default: 16 on a GPU (paged 32), 2 on a CPU]"
)
@click.option(
    "--kv-heads",
    type=click.IntRange(1, 256),
    help="Heads of keys and values.  [default: --heads; paged: 8 on a GPU, 1 on a CPU]",
)
@click.option(
    "--page-tokens",
    type=click.IntRange(1, 1024),
    default=AttentionOptions.page_tokens,
    show_default=True,
    help="Positions of a page.",
)
@click.option(
    "--dimension",
    type=click.Choice([str(dimension) for dimension in DIMENSIONS]),
    help="Of a head.  [default: 128 on a GPU, 64 on a CPU]",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16"]),
    default="bfloat16",
    show_default=True,
    help="On a GPU; a CPU computes in float32.",
)
@common
def command(
    size: int | None,
    seed: int,
    *,
    require_gpu: bool,
    as_json: bool,
    dimension: str | None,
    **shape: int | str | None,
) -> None:
    """Compute fused attention forward and backward, checked in 64 bits, timed against cuDNN."""
    try:
        options = AttentionOptions(
            size=size,
            seed=seed,
            require_gpu=require_gpu,
            dimension=int(dimension) if dimension else None,
            **shape,  # type: ignore[arg-type]
        )
    except BadArgument as error:
        raise click.UsageError(str(error)) from error
    finish("attention", lambda module: module.run(options), as_json=as_json)
