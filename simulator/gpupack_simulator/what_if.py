# SPDX-License-Identifier: Apache-2.0
"""The command `what-if`."""

from dataclasses import dataclass, replace
from pathlib import Path

from gpupack_placement import policy_named
from gpupack_simulator import cluster_comparison
from gpupack_simulator.cluster_comparison import ClusterComparison, add_gpus, drain_node
from gpupack_simulator.commands import Output, prepare_output, report_write_errors, show_tables
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.nodesource import NodeSource, read_node_source
from gpupack_simulator.inputs.quotafile import QuotaFile, read_quotas
from gpupack_simulator.inputs.scenario import Scenario, read_jobs, read_scenario
from gpupack_simulator.inputs.snapshot import read_snapshot
from gpupack_simulator.inputs.source import TraceSource, described, parameters, read_source
from gpupack_simulator.output.quotas import NOTE, QuotaChange, change_json, tables, verdict
from gpupack_simulator.output.results import Json, write_json
from gpupack_simulator.output.table import shown
from gpupack_simulator.output.writing import digested
from gpupack_simulator.quota_comparison import QuotaComparison
from gpupack_simulator.quota_warnings import quota_warnings
from gpupack_simulator.record import TimeUnit
from gpupack_terminal import console


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The options of `what-if`, by their names."""

    scenario: Path | None
    snapshot: Path | None
    adopt: bool
    jobs: Path | None
    source: TraceSource
    nodes: NodeSource
    quotas: Path | None
    quotas_before: Path | None
    drain: str | None
    more: str | None
    policy: str
    seed: int


def what_if(options: WhatIf, output: Output) -> None:
    """Replay the jobs twice, and print what would have changed.

    Raises:
        InvalidParameter: the options contain no question, or several.
    """
    policy_named(options.policy)
    _one_question(options)
    if options.quotas is None:
        _changed_cluster(options, output)
        return
    comparison = _comparison(options, options.quotas)
    _print_warnings(comparison)
    prepare_output(output)
    runs = comparison.runs()
    found = comparison.compared(runs)
    content = change_json(found, dict(comparison.parameters))

    def write() -> None:
        if output.json is not None:
            write_json(output.json, content)
        if output.folder is not None:
            digested(runs, output.folder)
            write_json(output.folder / "results.json", content)
            _write_report(found, comparison, output.folder, content["parameters"], output.command)

    report_write_errors(write)
    if not output.quiet:
        show_tables(shown(tables(found), NOTE, verdict(found)))


def _one_question(options: WhatIf) -> None:
    asked = (options.quotas, options.drain, options.more)
    if sum(each is not None for each in asked) != 1:
        raise InvalidParameter("what if what? give one of --quotas, --drain and --more")
    if options.quotas is None and (options.scenario is None or options.quotas_before is not None):
        raise InvalidParameter("--drain and --more need a SCENARIO, and no --quotas-before")


def _changed_cluster(options: WhatIf, output: Output) -> None:
    """Compare the cluster with one node less, or with more GPUs."""
    if output.folder is not None:
        raise InvalidParameter("--out is of --quotas; use --json")
    scenario, named = _with_trace(options, _cluster(options)[0])
    if options.drain is not None:
        changed, name = drain_node(scenario, options.drain), f"without {options.drain}"
    else:
        changed, name = add_gpus(scenario, options.more or ""), f"with {options.more}"
    comparison = ClusterComparison(
        today=scenario,
        changed=changed,
        name=name,
        policy=options.policy,
        seed=options.seed,
        parameters=named | {"changed": name},
    )
    prepare_output(output)
    runs = comparison.runs()
    content = cluster_comparison.comparison_json(runs, dict(comparison.parameters))
    if output.json is not None:
        path = output.json
        report_write_errors(lambda: write_json(path, content))
    if not output.quiet:
        note, said = cluster_comparison.NOTE, cluster_comparison.verdict(runs)
        show_tables(shown(cluster_comparison.tables(runs), note, said))


def _with_trace(options: WhatIf, scenario: Scenario) -> tuple[Scenario, Json]:
    named: Json = {"policy": options.policy}
    trace = read_source(options.source)
    if trace is None:
        return scenario, named
    console(err=True).print(described(options.source, trace), soft_wrap=True)
    jobs = (*scenario.jobs, *trace.jobs)
    return replace(scenario, jobs=jobs), named | parameters(options.source, trace)


def _comparison(options: WhatIf, quotas: Path) -> QuotaComparison:
    _one_cluster(options)
    proposed = read_quotas(quotas)
    today = None if options.quotas_before is None else read_quotas(options.quotas_before)
    scenario, snapshot = _cluster(options)
    scenario, named = _with_trace(options, scenario)
    return QuotaComparison(
        scenario=scenario,
        proposed=proposed,
        today=today,
        snapshot=snapshot,
        adopt=options.adopt,
        policy=options.policy,
        seed=options.seed,
        parameters=named | {"quotas_before": _before(today, scenario), "quotas": proposed.name},
    )


def _print_warnings(comparison: QuotaComparison) -> None:
    """Warn about quotas without effect; tenants and nodes may still come, so it is no error."""
    scenario, out = comparison.scenario, console(err=True)
    tenants = {job.tenant for job in scenario.jobs}
    cluster = comparison.cluster()
    before = scenario.quotas if comparison.today is None else comparison.today.quotas
    sides = {comparison.parameters["quotas_before"]: before}
    sides[comparison.parameters["quotas"]] = comparison.proposed.quotas
    for name, quotas in sides.items():
        for doubt in quota_warnings(quotas, tenants, cluster):
            out.print(f"Warning: {name}: {doubt}", soft_wrap=True)


def _one_cluster(options: WhatIf) -> None:
    """Check that there is one cluster; an option that would be ignored is an error."""
    if (options.scenario is None) == (options.snapshot is None):
        raise InvalidParameter("give a SCENARIO or a --snapshot: one of them is the cluster")
    if options.scenario is not None and (options.jobs is not None or options.adopt):
        name = "--adopt" if options.adopt else "--jobs"
        raise InvalidParameter(f"{name} is of a --snapshot; there is a SCENARIO")
    if options.snapshot is not None and options.nodes != NodeSource():
        raise InvalidParameter("--nodes is for a SCENARIO; there is a --snapshot")
    if options.snapshot is not None and options.jobs is None and options.source.path is None:
        raise InvalidParameter("a --snapshot needs jobs: --jobs JOBS.yaml or --trace")


def _cluster(options: WhatIf) -> tuple[Scenario, Json | None]:
    """Return the scenario, and the cluster that replaces its nodes; jobs of a trace come later."""
    if options.scenario is not None:
        elsewhere = options.source.path is not None
        nodes = read_node_source(options.nodes)
        scenario = read_scenario(options.scenario, jobs_from_elsewhere=elsewhere, nodes=nodes)
        return scenario, None
    if options.snapshot is None:
        raise InvalidParameter("there is no cluster")
    jobs = () if options.jobs is None else read_jobs(options.jobs)
    scenario = Scenario(options.snapshot.stem, (), jobs, TimeUnit.SECOND)
    return scenario, read_snapshot(options.snapshot, adopt=options.adopt)


def _before(today: QuotaFile | None, scenario: Scenario) -> str:
    if today is not None:
        return today.name
    return scenario.name if scenario.quotas.quotas or scenario.quotas.cohorts else "none"


def _write_report(
    found: QuotaChange, comparison: QuotaComparison, folder: Path, named: Json, command: str
) -> None:
    # Loading the plotting libraries takes longer than most runs, so it is done only for plots.
    from gpupack_simulator.output.quota_report import quota_report  # noqa: PLC0415

    jobs = len(comparison.scenario.jobs)
    page = quota_report(found, folder / "plots", jobs=jobs, parameters=named, command=command)
    (folder / "report.html").write_text(page)
