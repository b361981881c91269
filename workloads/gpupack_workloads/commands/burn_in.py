# SPDX-License-Identifier: Apache-2.0
"""`burn-in`."""

import os
from typing import Any

import click

from gpupack_workloads.burn_in.limits import LIMITS, BurnInOptions, Limit, parse_limits
from gpupack_workloads.commands.common import FiniteRange, common, finish
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def read_limits(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float | None]:
    """Read the limits; a wrong one is a usage error."""
    try:
        return parse_limits(texts)
    except BadArgument as error:
        raise click.BadParameter(str(error), context, parameter) from error


def describe_limit(limit: Limit) -> str:
    """Return a limit's meaning and default."""
    default = "not judged, except for known GPUs" if limit.default is None else f"{limit.default:g}"
    return f"{limit.meaning} [{limit.kind}; {default}]"


EPILOG = "\b\nLimits:\n" + "\n".join(
    f"  {name}: {describe_limit(limit)}" for name, limit in LIMITS.items()
)


@click.command("burn-in", epilog=EPILOG)
@click.option(
    "--seconds",
    type=click.IntRange(1, 3600),
    help="How long it may take.  [default: 120 on a GPU, 2 on a CPU]",
)
@click.option(
    "--memory-percent",
    type=FiniteRange(1, 95),
    default=90,
    show_default=True,
    help="How much of the free memory is tested.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    callback=read_limits,
    help="Replace a limit; `none` does not judge. May be given many times.",
)
@common
def command(
    seconds: int | None,
    memory_percent: float,
    limits: dict[str, float | None],
    seed: int,
    *,
    require_gpu: bool,
    as_json: bool,
) -> None:
    """Work one GPU hard and judge it: healthy, or why not (exit status 3).

    In a job of several workers, the GPU of each is compared with the others of its model where no
    data sheet is known.
    """

    def run(module: Any) -> Result:
        options = BurnInOptions(
            seconds=seconds,
            memory_percent=memory_percent,
            limits=limits,
            gang=Gang.from_environ(os.environ),
            seed=seed,
            require_gpu=require_gpu,
        )
        result: Result = module.run(options)
        return result

    finish("burn-in", run, as_json=as_json)
