# SPDX-License-Identifier: Apache-2.0
"""The command line: one command for each question."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from gpupack_cost import Group
from gpupack_placement import POLICIES, DecisionError
from gpupack_simulator import commands
from gpupack_simulator.commands import Output, Play, Replay
from gpupack_simulator.disciplines import DISCIPLINES
from gpupack_simulator.errors import InvalidParameter, SimulatorError
from gpupack_simulator.experiments import FIFO, MEASURED, WARM_UP, KnownMix
from gpupack_simulator.inputs.nodesource import NodeSource
from gpupack_simulator.inputs.source import TraceSource
from gpupack_simulator.inputs.swf import TenantColumn
from gpupack_simulator.what_if import WhatIf, what_if
from gpupack_terminal import run as run_process

F = TypeVar("F", bound=Callable[..., Any])

PROGRAM = "gpupack-simulator"
_TYPED = "gpupack_simulator.typed"
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


class ErrorMessages(click.Group):
    """A group that prints our errors as messages; others are bugs and keep their traceback."""

    def main(self, *args: Any, **given: Any) -> NoReturn:
        """Run as a process, and exit."""
        sys.exit(
            run_process(lambda: super(ErrorMessages, self).main(*args, **given), program=PROGRAM)
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed, for the report."""
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (SimulatorError, DecisionError) as error:
            raise click.ClickException(str(error)) from error


class NameList(click.ParamType):  # type: ignore[type-arg]  # older clicks have no generic
    """Names separated by commas."""

    name = "NAME,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Each once, in the order given."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


def _output_options(command: F) -> F:
    options = (
        click.option("--json", type=_FILE, help="Write the figures of all runs here."),
        click.option("--out", type=_FOLDER, help="Write figures, plots and an HTML report here."),
        click.option(
            "-j",
            "--processes",
            type=click.IntRange(1),
            default=os.cpu_count() or 1,
            show_default="one per core",
            help="Runs made at the same time.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="No progress bar and no tables."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _policies(default: str) -> Callable[[F], F]:
    return click.option(
        "--policies",
        type=NameList(),
        default=default,
        show_default=True,
        help="Names of policies or weighted sums such as 0.7*fgd+0.3*best-fit.",
    )


@click.group(cls=ErrorMessages, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Replay GPU workloads through gpupack's own placement policies."""


@main.command()
@click.option("--nodes", type=_FILE, help="CSV of nodes in the openb format.")
@click.option("--pods", type=_FILE, help="CSV of pods in the openb format.")
@click.option("--mixed", type=_FILE, help="YAML that describes a cluster and its pods.")
@click.option("--snapshot", type=_FILE, help="JSON of a cluster, instead of --nodes.")
@click.option("--adopt", is_flag=True, help="What the snapshot holds is held, fit or not.")
@click.option("--jobs", type=_FILE, help="YAML of jobs, instead of --pods: what if they came?")
@_policies("fgd,best-fit,default")
@click.option("--demand", default=1.3, show_default=True, help="GPU demand per GPU there is.")
@click.option("--seeds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--departures", is_flag=True, help="Jobs come and go, instead of filling up.")
@click.option("--load", default=0.95, show_default=True, help="Demand of those that run per GPU.")
@click.option(
    "--discipline",
    type=click.Choice(sorted(DISCIPLINES)),
    default=FIFO,
    show_default=True,
    help="Whose turn it is; with --departures or --jobs.",
)
@click.option("--warm-up", default=WARM_UP, show_default=True, help="Mean lifetimes left out.")
@click.option("--measured", default=MEASURED, show_default=True, help="Mean lifetimes measured.")
@click.option(
    "--known-mix",
    type=click.Choice([str(known) for known in KnownMix]),
    is_flag=False,
    flag_value=str(KnownMix.ALL),
    default=str(KnownMix.PUBLISHED),
    show_default=True,
    help="Policies that know the mix of the pods: all (also without a value), none, or FGD alone, "
    "as it was published. The others learn it from the pods that arrive.",
)
@click.option("--fragmentation", is_flag=True, help="Measure fragmentation too; slower.")
@_output_options
def replay(**given: Any) -> None:
    """Fill a cluster with a trace, or keep it busy with jobs that come and go."""
    output = _output(given)
    commands.replay(Replay(**given), output)


def _trace_options(command: F) -> F:
    options = (
        click.option(
            "--nodes",
            type=_FILE,
            help="Nodes instead of the scenario's: a table, or `kubectl get nodes -o yaml`.",
        ),
        click.option("--node-mapping", type=_FILE, help="YAML that names the columns of --nodes."),
        click.option("--trace", type=_FILE, help="Jobs to add: CSV, or SWF (NAME.swf)."),
        click.option("--mapping", type=_FILE, help="YAML that names the columns of a CSV."),
        click.option(
            "--processors-per-gpu",
            type=click.IntRange(1),
            help="Of SWF: a job's GPUs are its processors by this, rounded up.  [default: 1]",
        ),
        click.option(
            "--gpus-per-worker",
            type=click.IntRange(1),
            help="Of SWF: jobs of more GPUs are gangs.  [default: 8]",
        ),
        click.option(
            "--tenants",
            type=click.Choice([str(column) for column in TenantColumn]),
            help="Of SWF: the column that names the tenant.  [default: user]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _scenario_options(command: F) -> F:
    command = _trace_options(command)
    options = (
        click.argument("scenario", type=_FILE),
        click.option(
            "--discipline",
            type=click.Choice(sorted(DISCIPLINES)),
            help="Whose turn it is, instead of what the scenario says.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@_scenario_options
@_policies("default")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@_output_options
def run(seeds: int, **given: Any) -> None:
    """Run a SCENARIO (YAML) to its end."""
    output = _output(given)
    commands.play(_play(given), seeds, output)


@main.command()
@_scenario_options
@_policies(",".join(POLICIES))
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@_output_options
def compare(seeds: int, **given: Any) -> None:
    """Run a SCENARIO (YAML) under every policy and compare."""
    output = _output(given)
    commands.play(_play(given), seeds, output)


@main.command()
@_scenario_options
@_policies("default")
@click.option("--steps", type=click.IntRange(0), help="So many; left out: until the end.")
@click.option("--every", default=1.0, show_default=True, help="Time between two pictures.")
@click.option("--seed", default=0, show_default=True)
def step(steps: int | None, every: float, seed: int, **given: Any) -> None:
    """Print the cluster of a SCENARIO (YAML) after each time step."""
    commands.step(_play(given), steps=steps, every=every, seed=seed)


@main.command()
@_scenario_options
@click.option("--prices", type=_FILE, required=True, help="YAML: currency, and prices by model.")
@click.option(
    "--by",
    type=click.Choice([str(Group.NAMESPACE), str(Group.JOB), str(Group.MODEL)]),
    default=str(Group.NAMESPACE),
    show_default=True,
    help="What makes a line.",
)
@click.option("--policy", default="default", show_default=True, help="Where jobs are placed.")
@click.option("--seed", default=0, show_default=True)
@click.option("--csv", type=_FILE, help="Write the lines here.")
def cost(prices: Path, by: str, policy: str, seed: int, csv: Path | None, **given: Any) -> None:
    """Run a SCENARIO (YAML) and say what its tenants would pay."""
    play = _play({**given, "policies": (policy,)})
    commands.cost(play, prices, by=by, seed=seed, csv=csv)


@main.command("what-if")
@click.argument("scenario", type=_FILE, required=False)
@click.option("--snapshot", type=_FILE, help="JSON of a cluster, instead of a SCENARIO.")
@click.option("--adopt", is_flag=True, help="What the snapshot holds is held, fit or not.")
@click.option("--jobs", type=_FILE, help="YAML of jobs for --snapshot; times in seconds.")
@_trace_options
@click.option("--quotas", type=_FILE, help="YAML of the proposed quotas and cohorts.")
@click.option("--drain", metavar="NODE@TIME", help="Drain the node from that time on.")
@click.option("--more", metavar="NUMBER x MODEL", help="So many GPUs more: '8 x H100'.")
@click.option(
    "--quotas-before",
    type=_FILE,
    help="YAML of today's.  [default: those of the SCENARIO, or none]",
)
@click.option("--policy", default="default", show_default=True, help="Where jobs are placed.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", type=_FILE, help="Write the figures of both runs here.")
@click.option("--out", type=_FOLDER, help="Write figures, plots and an HTML report here.")
@click.option("-q", "--quiet", is_flag=True, help="No tables.")
def quotas_what_if(**given: Any) -> None:
    """Replay jobs as it is, and with other quotas, a node less or GPUs more: what would change?"""
    given["processes"] = 1
    output, source = _output(given), _source(given)
    what_if(WhatIf(source=source, nodes=_nodes(given), **given), output)


def _play(given: dict[str, Any]) -> Play:
    source = _source(given)
    return Play(source=source, nodes=_nodes(given), **given)


def _nodes(given: dict[str, Any]) -> NodeSource:
    """Take the options out of those given."""
    return NodeSource(path=given.pop("nodes"), mapping=given.pop("node_mapping"))


def _source(given: dict[str, Any]) -> TraceSource:
    """Takes its options out of those given."""
    return TraceSource(
        path=given.pop("trace"),
        mapping=given.pop("mapping"),
        processors_per_gpu=given.pop("processors_per_gpu"),
        gpus_per_worker=given.pop("gpus_per_worker"),
        tenants=given.pop("tenants"),
    )


def _output(given: dict[str, Any]) -> Output:
    """Takes its options out of those given; what is left are inputs."""
    json = given.pop("json")
    if json is not None and json.resolve() in _inputs(given):
        raise InvalidParameter(f"--json would overwrite {json.name}, which is read; name another")
    return Output(
        json=json,
        folder=given.pop("out"),
        processes=given.pop("processes"),
        quiet=given.pop("quiet"),
        command=_command(),
    )


def _inputs(given: dict[str, Any]) -> set[Path]:
    """Files that are read."""
    return {value.resolve() for value in given.values() if isinstance(value, Path)}


def _command() -> str:
    """As it was typed, for the report."""
    context = click.get_current_context()
    return f"{context.find_root().info_name} {shlex.join(context.meta[_TYPED])}"
