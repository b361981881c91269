# SPDX-License-Identifier: Apache-2.0
"""Options of the served network and of its batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpupack_workloads.inference_server.options import GATHERED, PAGED, ServingOptions

Command = TypeVar("Command", bound=Callable[..., Any])


def serving(command: Command) -> Command:
    """Add them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


OPTIONS = (
    click.option(
        "--layers", type=click.IntRange(1, 256), help="Blocks.  [default: 12 on GPUs, 2 on CPUs]"
    ),
    click.option(
        "--width",
        type=click.IntRange(64, 32768),
        help="Numbers per token.  [default: 2048 on GPUs, 128 on CPUs]",
    ),
    click.option(
        "--heads",
        type=click.IntRange(1, 512),
        help="Of the queries; width / heads must be 64 or 128.  [default: 16 on GPUs, 2 on CPUs]",
    ),
    click.option(
        "--kv-heads",
        type=click.IntRange(1, 512),
        help="Of keys and values; must divide the heads.  [default: 4 on GPUs, 2 on CPUs]",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        help="Folder in which `transformer` left checkpoints of such a network."
        "  [default: untrained weights, made from the seed]",
    ),
    click.option(
        "--max-length",
        type=click.IntRange(16, 131072),
        help="Tokens of prompt and answer together; a multiple of 16."
        "  [default: 2048 on GPUs, 256 on CPUs]",
    ),
    click.option(
        "--max-batch",
        type=click.IntRange(1, 1024),
        help="Requests that compute at a time.  [default: 32 on GPUs, 8 on CPUs]",
    ),
    click.option(
        "--max-waiting",
        type=click.IntRange(1, 100_000),
        default=ServingOptions.max_waiting,
        show_default=True,
        help="Requests that wait; more are refused with 429.",
    ),
    click.option(
        "--prefill-tokens",
        type=click.IntRange(16, 131072),
        help="Tokens of prompts in one step.  [default: 512 on GPUs, 64 on CPUs]",
    ),
    click.option(
        "--memory-mib",
        type=click.IntRange(1, 2**30),
        help="For everything.  [default: the share's, or what is free]",
    ),
    click.option(
        "--graphs/--no-graphs",
        default=None,
        help="Steps of one token as CUDA graphs.  [default: on GPUs]",
    ),
    click.option(
        "--attention",
        type=click.Choice([PAGED, GATHERED]),
        help="Of steps of one token: our kernel over the pages, or torch's over copies of them."
        f"  [default: {PAGED} on GPUs, {GATHERED} without]",
    ),
)
