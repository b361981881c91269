# SPDX-License-Identifier: Apache-2.0
"""The command line: one command per workload, one line of result, an exit status that tells why.

Exit status: 0 done and verified; 2 bad argument; 3 wrong result; 4 out of memory; 5 no such device;
6 other workers missing; 1 anything else.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpupack_workloads.errors import WorkloadError, WrongResult
from gpupack_workloads.results import Result, encode, report, result_path
from gpupack_workloads.settings import Gang, Options, prepare

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def main() -> None:
    """Run one of gpupack's built-in GPU workloads."""


def common(command: Command) -> Command:
    """Add the options that every workload has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON."),
        click.option("--require-gpu", is_flag=True, help="Fail rather than compute on the CPU."),
        click.option("--seed", type=click.IntRange(0), default=0, help="Of all random data."),
    ):
        command = option(command)
    return command


@main.command()
@click.option(
    "--size",
    type=click.IntRange(1, 65536),
    help="Rows and columns of the matrices.  [default: 8192 on a GPU, 512 on a CPU]",
)
@common
def matmul(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Multiply matrices with torch and with a Triton kernel, checked against NumPy."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish("matmul", lambda module: module.run(options), as_json=as_json)


@main.command()
@click.option(
    "--size",
    type=click.IntRange(8, 16 * 2**30),
    help="Bytes of the largest buffer.  [default: 1 GiB on GPUs, 4 MiB on CPUs]",
)
@common
def allreduce(size: int | None, seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Sum buffers over all processes of all workers, checked exactly."""
    options = Options(size=size, seed=seed, require_gpu=require_gpu)
    finish(
        "allreduce",
        lambda module: module.run(options, Gang.from_environ(os.environ)),
        as_json=as_json,
    )


def finish(name: str, run: Callable[[Any], Result], *, as_json: bool) -> None:
    """Run a workload's module, report what came out and leave with its exit status."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    prepare(os.environ)
    try:
        result = run(importlib.import_module(f"gpupack_workloads.{name}"))
    except WrongResult as error:
        report(refuted(name), result_path(os.environ))
        fail(error)
    except WorkloadError as error:
        fail(error)
    else:
        report(result, result_path(os.environ))
        click.echo(encode(result).decode() if as_json else result.headline)


def refuted(name: str) -> Result:
    """Return the result of a workload that computed something wrong: no figures."""
    return Result(
        workload=name, headline="wrong result", verified=False, simulated=False, metrics={}
    )


def fail(error: WorkloadError) -> None:
    """Say what went wrong and leave with its status."""
    logger.error("%s: %s", type(error).__name__, error)
    sys.exit(error.exit_status)
