# SPDX-License-Identifier: Apache-2.0
"""Implementation of the commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from math import isfinite
from pathlib import Path

from rich.console import RenderableType

from gpupack_cost import Group
from gpupack_placement import Node, policy_named
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.experiments import (
    Departing,
    Experiment,
    Filling,
    KnownMix,
    OnSnapshot,
    Scripted,
)
from gpupack_simulator.inputs.mixedfile import read_mixed
from gpupack_simulator.inputs.nodesource import NodeSource, read_node_source
from gpupack_simulator.inputs.openb import Pod, read_nodes, read_pods
from gpupack_simulator.inputs.prices import read_prices
from gpupack_simulator.inputs.scenario import read_jobs, read_scenario
from gpupack_simulator.inputs.snapshot import read_snapshot
from gpupack_simulator.inputs.source import TraceSource, described, parameters, read_source
from gpupack_simulator.mixed import mixed_pods
from gpupack_simulator.output.cost import cost_csv, cost_lines, cost_table
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.results import results, write_json
from gpupack_simulator.output.steps import show
from gpupack_simulator.output.table import tables
from gpupack_simulator.output.writing import write_report, write_results
from gpupack_simulator.runner import run_all
from gpupack_terminal import console

_WORTH_A_PROCESS = 5000
"""Minimum number of jobs for parallel processes; fewer are run faster than a process starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The options of output: where the figures go, and with how many processes."""

    json: Path | None
    folder: Path | None
    processes: int
    quiet: bool
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The options of `replay`, by their names."""

    nodes: Path | None
    pods: Path | None
    mixed: Path | None
    snapshot: Path | None
    jobs: Path | None
    adopt: bool
    policies: tuple[str, ...]
    demand: float
    seeds: int
    departures: bool
    load: float
    discipline: str
    warm_up: float
    measured: float
    known_mix: str
    fragmentation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The options of `run`, `compare` and `step`, by their names."""

    scenario: Path
    policies: tuple[str, ...]
    source: TraceSource
    nodes: NodeSource
    discipline: str | None


def replay(options: Replay, output: Output) -> None:
    """Replay a trace: fill up a cluster, keep it busy, or answer a what-if question."""
    _check_policies(options.policies)
    _one_source(options)
    if options.snapshot is not None and options.jobs is not None:
        _report(_what_if(options.snapshot, options.jobs, options), options.policies, 1, output)
        return
    experiment = replace(_replay_of(options), pictures=output.folder is not None)
    _report(experiment, options.policies, options.seeds, output)


def play(options: Play, seeds: int, output: Output) -> None:
    """Run a scenario under each policy and compare."""
    _check_policies(options.policies)
    experiment = _scenario_of(options)
    if len(experiment.scenario.jobs) * seeds * len(options.policies) < _WORTH_A_PROCESS:
        output = replace(output, processes=1)
    _report(experiment, options.policies, seeds, output)


def step(options: Play, *, steps: int | None, every: float, seed: int) -> None:
    """Print the cluster after each time step."""
    _check_policies(options.policies)
    if not (every > 0 and isfinite(every)):
        raise InvalidParameter(f"--every is {every:g}; give the time from one picture to the next")
    experiment, out = _scenario_of(options), console()
    for policy in options.policies:
        simulator = experiment.simulator(policy, seed)
        for number in count() if steps is None else range(steps + 1):
            simulator.advance(number * every)
            out.print(show(simulator.state()))
            if simulator.over:
                break


def cost(options: Play, prices: Path, *, by: str, seed: int, csv: Path | None) -> None:
    """Run a scenario under one policy, and print the costs of its tenants."""
    _check_policies(options.policies)
    tariffs, group = read_prices(prices), Group(by)
    if csv is not None:
        _make(csv.parent)
    experiment = replace(_scenario_of(options), occupancy=True)
    (policy,) = options.policies
    lines = cost_lines(experiment.run(policy, seed), group, tariffs)
    show_tables(cost_table(lines, group, tariffs))
    if csv is not None:
        report_write_errors(lambda: _write_text(csv, cost_csv(lines)))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)


def _scenario_of(options: Play) -> Scripted:
    traced = options.source.path is not None
    nodes = read_node_source(options.nodes)
    scenario = read_scenario(options.scenario, jobs_from_elsewhere=traced, nodes=nodes)
    if options.discipline is not None:
        scenario = replace(scenario, discipline=options.discipline)
    trace = read_source(options.source)
    if trace is None:
        return Scripted(scenario)
    if trace.left_out or options.source.is_swf:
        console(err=True).print(described(options.source, trace), soft_wrap=True)
    jobs = (*scenario.jobs, *trace.jobs)
    return Scripted(replace(scenario, jobs=jobs), parameters(options.source, trace))


def _one_source(options: Replay) -> None:
    """Check that there is one source; an option that would be ignored is an error."""
    traced = options.nodes is not None or options.pods is not None
    stated = options.snapshot is not None or options.jobs is not None
    if traced + stated + (options.mixed is not None) > 1:
        raise InvalidParameter(
            "give either --nodes and --pods, or --snapshot and --jobs, or --mixed"
        )
    if stated and options.departures:
        raise InvalidParameter("--departures draws jobs from --pods; --jobs are taken as they are")
    if options.adopt and not stated:
        raise InvalidParameter("--adopt is of a --snapshot; there is none")


def _what_if(snapshot: Path, jobs: Path, options: Replay) -> OnSnapshot:
    named = {"snapshot": snapshot.name, "jobs": jobs.name}
    document = read_snapshot(snapshot, adopt=options.adopt)
    return OnSnapshot(document, read_jobs(jobs), options.discipline, options.adopt, named)


def _read_trace(options: Replay) -> tuple[tuple[Node, ...], tuple[Pod, ...], dict[str, str]]:
    """Return nodes, pods, and the names of their files."""
    if options.mixed is not None:
        style = read_mixed(options.mixed)
        return style.nodes, mixed_pods(style), {"mixed": options.mixed.name}
    if options.nodes is None or options.pods is None:
        raise InvalidParameter("give --nodes and --pods, or --snapshot and --jobs, or --mixed")
    named = {"nodes": options.nodes.name, "pods": options.pods.name}
    return read_nodes(options.nodes), read_pods(options.pods), named


def _replay_of(options: Replay) -> Filling | Departing:
    nodes, pods, named = _read_trace(options)
    if not options.departures:
        return Filling(
            nodes,
            pods,
            options.demand,
            KnownMix(options.known_mix),
            options.fragmentation,
            named,
        )
    return Departing(
        nodes,
        pods,
        options.load,
        options.discipline,
        options.warm_up,
        options.measured,
        KnownMix(options.known_mix),
        options.fragmentation,
        named,
    )


def _check_policies(policies: Sequence[str]) -> None:
    """Check the policies before anything is run."""
    for policy in policies:
        policy_named(policy)


def show_tables(made: RenderableType) -> None:
    """Print tables; lines too long for the terminal wrap, since a cut figure would be wrong."""
    console().print(made, crop=False)


def _write(digests: Sequence[Digest], output: Output) -> None:
    if output.json is not None:
        write_json(output.json, results(digests))
    if output.folder is not None:
        write_results(digests, output.folder)
        write_report(digests, output.folder, command=output.command)


def _check_plots() -> None:
    """Check before anything is run that plots can be drawn."""
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise InvalidParameter(
            f"--out draws a report, which needs {' and '.join(missing)}: "
            "pip install 'gpupack-simulator[plots]', or write the figures by --json"
        )


def _make(folder: Path | None) -> None:
    """Make a folder before anything is run, so that hours of work are not lost without it."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(f"{folder} cannot be made a folder: {error.strerror}") from error


def prepare_output(output: Output) -> None:
    """Prepare the output before anything is run, so that it can be written."""
    if output.folder is not None:
        _check_plots()
    for place in (output.folder, output.json and output.json.parent):
        _make(place)


def report_write_errors(write: Callable[[], None]) -> None:
    """Call a function that writes, and report a full disk like any other error."""
    try:
        write()
    except OSError as error:
        raise InvalidParameter(f"{error.filename or 'what was found'}: {error.strerror}") from error


def _report(
    experiment: Experiment, policies: Sequence[str], seeds: int, output: Output
) -> tuple[Digest, ...]:
    prepare_output(output)
    digests = run_all(
        experiment,
        policies,
        range(seeds),
        processes=output.processes,
        folder=output.folder,
        quiet=output.quiet,
    )
    report_write_errors(lambda: _write(digests, output))
    if not output.quiet:
        show_tables(tables(digests))
    return digests
