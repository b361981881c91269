# SPDX-License-Identifier: Apache-2.0
"""What the commands do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpupack_core import policy_named
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.experiments import Departing, Experiment, Filling
from gpupack_simulator.inputs.openb import read_nodes, read_pods
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.results import results, write_json
from gpupack_simulator.output.table import tables
from gpupack_simulator.output.writing import write_report, write_results
from gpupack_simulator.runner import run_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the figures go, and how fast."""

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
    snapshot: Path | None
    jobs: Path | None
    policies: tuple[str, ...]
    demand: float
    seeds: int
    departures: bool
    load: float
    discipline: str
    warm_up: float
    measured: float
    known_mix: bool
    fragmentation: bool


def replay(options: Replay, output: Output) -> None:
    """Fill up, keep busy, or what if."""
    _known(options.policies)
    _report(_replay_of(options), options.policies, options.seeds, output)


def _replay_of(options: Replay) -> Experiment:
    if options.nodes is None or options.pods is None:
        raise InvalidParameter("give --nodes and --pods, or --snapshot and --jobs")
    nodes, pods = read_nodes(options.nodes), read_pods(options.pods)
    parameters = {"nodes": options.nodes.name, "pods": options.pods.name}
    if not options.departures:
        return Filling(
            nodes,
            pods,
            options.demand,
            options.known_mix,
            options.fragmentation,
            parameters,
        )
    return Departing(
        nodes,
        pods,
        options.load,
        options.discipline,
        options.warm_up,
        options.measured,
        options.known_mix,
        options.fragmentation,
        parameters,
    )


def _known(policies: Sequence[str]) -> None:
    """Before anything is run: an unknown policy is an error."""
    for policy in policies:
        policy_named(policy)


def _report(
    experiment: Experiment, policies: Sequence[str], seeds: int, output: Output
) -> tuple[Digest, ...]:
    digests = run_all(
        experiment,
        policies,
        range(seeds),
        processes=output.processes,
        folder=output.folder,
        quiet=output.quiet,
    )
    if output.json is not None:
        write_json(output.json, results(digests))
    if output.folder is not None:
        write_results(digests, output.folder)
        write_report(digests, output.folder, command=output.command)
    if not output.quiet:
        Console().print(tables(digests))
    return digests
