# SPDX-License-Identifier: Apache-2.0
"""`inference-server`."""

from pathlib import Path
from typing import Any

import click

from gpupack_workloads.commands.common import FiniteRange, common, finish
from gpupack_workloads.commands.serving import serving
from gpupack_workloads.inference_server.options import ServerOptions

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("inference-server")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at; beyond loopback only with a token.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--token-file",
    type=FILE,
    help="Holds what callers must show.  [default: what is in INFERENCE_TOKEN]",
)
@click.option("--tls-certificate", type=FILE, help="PEM file; with --tls-key, HTTPS.")
@click.option("--tls-key", type=FILE, help="PEM file.")
@click.option(
    "--drain-seconds",
    type=FiniteRange(0, 3600),
    default=25.0,
    show_default=True,
    help="For requests under way after SIGTERM; less than the pod's grace period.",
)
@serving
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Serve the transformer over HTTP until a signal ends it."""
    options = ServerOptions(**arguments)
    finish("inference-server", lambda module: module.run(options), as_json=as_json)
