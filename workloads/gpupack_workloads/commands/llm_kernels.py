# SPDX-License-Identifier: Apache-2.0
"""`llm-kernels`."""

from typing import Any

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.llm_kernels import DTYPES, KERNELS, LlmOptions


@click.command("llm-kernels")
@click.option("--kernel", type=click.Choice(KERNELS), help="Only one.  [default: all]")
@click.option(
    "--size", type=click.IntRange(1, 2**20), help="Tokens.  [default: 8192 on a GPU, 48 on a CPU]"
)
@click.option(
    "--hidden",
    type=click.IntRange(1, 2**16),
    help="Numbers per token.  [default: 4096 on a GPU, 96 on a CPU]",
)
@click.option(
    "--heads",
    type=click.IntRange(1, 1024),
    help="Of the queries.  [default: 32 on a GPU, 4 on a CPU]",
)
@click.option(
    "--kv-heads",
    type=click.IntRange(1, 1024),
    help="Of the keys.  [default: 8 on a GPU, 2 on a CPU]",
)
@click.option(
    "--head",
    type=click.IntRange(2, 1024),
    help="Numbers of a head, even.  [default: 128 on a GPU, 48 on a CPU]",
)
@click.option(
    "--intermediate",
    type=click.IntRange(1, 2**18),
    help="Numbers per token within the gated part.  [default: 14336 on a GPU, 200 on a CPU]",
)
@click.option(
    "--vocabulary",
    type=click.IntRange(2, 2**20),
    help="Words.  [default: 128256 on a GPU, 500 on a CPU]",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Of all operands.  [default: bfloat16 on a GPU, float32 on a CPU]",
)
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Compute norm, rotation, gate and loss of a language model, against others."""
    options = LlmOptions(**arguments)
    finish("llm-kernels", lambda module: module.run(options), as_json=as_json)
