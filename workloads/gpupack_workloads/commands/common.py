# SPDX-License-Identifier: Apache-2.0
"""Common options and exit of all commands."""

import importlib
import logging
import math
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpupack_kernels.errors import Unsupported
from gpupack_workloads.errors import BadArgument, WorkloadError, WrongResult, termination_error
from gpupack_workloads.results import Result, headline, in_full, report, result_bytes, result_path
from gpupack_workloads.seeds import LARGEST_SEED
from gpupack_workloads.settings import Gang, Options, prepare, temporary_folder
from gpupack_workloads.signals import EndRequested, SignalContext, raising_on_signals

logger = logging.getLogger(__name__)


class FiniteRange(click.FloatRange):
    """Numbers in a range; NaN is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is no number", param, ctx)
        return number


Command = TypeVar("Command", bound=Callable[..., Any])
Run = Callable[[Any], Result]


def common(command: Command) -> Command:
    """Add the options that every workload has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON."),
        click.option("--require-gpu", is_flag=True, help="Fail rather than compute on the CPU."),
        click.option(
            "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, help="Of all random data."
        ),
    ):
        command = option(command)
    return command


def finish(
    name: str, run: Run, *, as_json: bool, signals: SignalContext = raising_on_signals
) -> None:
    """Run a workload's module, report what came out and leave with its exit status.

    Where click's context has an object, it is what a command puts around another one's run.

    Args:
        name: name of the workload.
        run: what to do with its module.
        as_json: whether to print the whole result.
        signals: what signals to end do from before the module is imported until it has run.
    """
    around: Callable[[Run], Run] = click.get_current_context().obj or (lambda run: run)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    prepare(os.environ)
    try:
        with signals():
            module = importlib.import_module(f"gpupack_workloads.{name.replace('-', '_')}")
            result = around(run)(module)
    except WrongResult as error:
        show(error.result or refuted(name), as_json=as_json)
        fail(error)
    except WorkloadError as error:
        fail(error)
    except Unsupported as error:
        fail(BadArgument(str(error)))
    except EndRequested as request:
        fail(termination_error(request.sigval))
    else:
        show(result, as_json=as_json)


def in_gang(options: Options) -> Run:
    """Return a function that runs a workload as this worker; it reads the worker's place."""

    def run(module: Any) -> Result:
        gang = Gang.from_environ(os.environ)
        # The launcher has a file per process there, for the reason why it ends.
        temporary_folder()
        result: Result = module.run(options, gang)
        return result

    return run


def show(result: Result, *, as_json: bool) -> None:
    """Leave a result where the kubelet reads it and print it."""
    report(result, result_path(os.environ), result_bytes(os.environ))
    click.echo(in_full(result).decode() if as_json else result.headline)


def refuted(name: str) -> Result:
    """Return the result of a workload that computed something wrong: no figures."""
    simulated = without_gpu()
    return Result(
        workload=name,
        headline=headline("wrong result", simulated=simulated),
        verified=False,
        simulated=simulated,
        metrics={},
    )


def without_gpu() -> bool:
    """Return whether it was computed on a CPU: the rule by which workloads choose their device.

    Asked here, since an error of a gang's process comes as an exit status, which cannot tell.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return True
    return not torch.cuda.is_available()


def fail(error: WorkloadError) -> None:
    """Say what went wrong and leave with its status."""
    logger.error("%s: %s", type(error).__name__, error)
    sys.exit(error.exit_status)
