# SPDX-License-Identifier: Apache-2.0
"""`inference-load`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.commands.common import FiniteRange, common, finish
from gpupack_workloads.commands.serving import serving
from gpupack_workloads.inference_load.options import LoadOptions


@click.command("inference-load")
@click.option(
    "--rate",
    type=FiniteRange(0.01, 10_000),
    help="Requests per second, on average.  [default: 16 on GPUs, 6 on CPUs, 4 with --url]",
)
@click.option(
    "--seconds",
    type=FiniteRange(0.1, 3600),
    help="For how long requests begin.  [default: 10; 2 on CPUs]",
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1, 65536),
    help="Of a request, on average.  [default: 256 on GPUs, 24 on CPUs, 64 with --url]",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(1, 65536),
    help="Of an answer, on average.  [default: 64 on GPUs, 8 on CPUs, 32 with --url]",
)
@click.option(
    "--url", help="Of a server that runs already, without a path.  [default: start one here]"
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Holds the token of --url's server.  [default: what is in INFERENCE_TOKEN]",
)
@serving
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Measure how long users of an inference server wait, after checking its answers."""
    options = LoadOptions(**arguments)
    finish("inference-load", lambda module: module.run(options), as_json=as_json)
