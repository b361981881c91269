# SPDX-License-Identifier: Apache-2.0
"""What moving jobs brings to those of 8 GPUs, and what it costs, on openb at a load of 0.95.

    python benchmarks/consolidation.py --traces FOLDER [--write]

Pods of openb's list come at random on every --nodes-every-th node of the trace, and last for
--hours on average (exponential), as in `gpupack-simulator replay --departures`; the first --warm-up
lifetimes are not measured. A --movable part of the jobs may be moved; these save their work every
--checkpoint seconds and need --restart to go on. The queue is the cluster's (fair-share, all of one
tenant), and knows of no job how long it takes, or with --durations exact of each. For each seed the
same jobs are run without consolidation and with it, for each of --ratios.

What is lost is measured: work done again, and restarts. What the queue took it to cost and to gain
when it decided is reported too, with the largest part of the gain that any one consolidation
cost, which the ratio bounds. The measured gain is how much sooner jobs of 2 GPUs and more started,
times their GPUs.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any, Final

from documents import replaced

from gpupack_placement import WHOLE_GPU, Node
from gpupack_queue import NO_PREEMPTION, ConsolidationRules
from gpupack_simulator import Job, Run, Sampling, Settings, Simulator, TimeUnit
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations
from gpupack_simulator.inputs.openb import Pod, read_nodes, read_pods
from gpupack_simulator.job import Size
from gpupack_simulator.record import Cause, JobRecord
from gpupack_simulator.workload import departing_jobs

SCHEMA: Final = "gpupack.dev/consolidation/v1"
HOUR: Final = 3600.0
MILLI_HOURS: Final = 1000 * HOUR
REPORT: Final = Path("docs/reports/consolidation.json")
DOCUMENT: Final = Path("docs/queueing/measurements.md")
MARKS: Final = "consolidation"
SIZES: Final = (Size.SHARE, Size.ONE, Size.FEW, Size.HALF, Size.NODE)


def jobs_of(
    pods: Sequence[Pod], nodes: Sequence[Node], options: argparse.Namespace, seed: int
) -> list[Job]:
    """Return drawn jobs; times in seconds."""
    random = Random(f"{seed}:consolidation")  # noqa: S311  # not for secrets
    lifetimes = options.warm_up + options.measured
    made = departing_jobs(
        pods,
        load=options.load,
        capacity_milli=1000 * sum(len(node.devices) for node in nodes),
        until=lifetimes,
        random=random,
    )
    unit = options.hours * HOUR
    return [
        replace(
            job,
            arrival=job.arrival * unit,
            duration=job.duration * unit,
            movable=random.random() < options.movable,
            checkpoint=options.checkpoint,
            restart=options.restart,
        )
        for job in made
    ]


def run(
    nodes: Sequence[Node], jobs: Sequence[Job], options: argparse.Namespace, ratio: float, seed: int
) -> Run:
    """Run until the last lifetime is over."""
    fair = DISCIPLINES["fair-share"]
    # One tenant and one priority: a search for victims finds no job.
    rules = replace(
        fair.rules,
        preemption=NO_PREEMPTION,
        consolidation=ConsolidationRules(
            ratio=ratio,
            restart_seconds=options.restart,
            checkpoint_seconds=options.checkpoint,
            cooldown_seconds=options.calm,
            max_moves=options.most,
        ),
    )
    unit = options.hours * HOUR
    until = (options.warm_up + options.measured) * unit
    settings = Settings(
        queue=replace(fair, rules=rules, durations=KnownDurations(options.durations)),
        discipline=fair.name,
        seed=seed,
        time_unit=TimeUnit.SECOND,
        until=until,
        measured_from=options.warm_up * unit,
        sampling=Sampling(every=until / 100),
        occupancy=False,
    )
    return Simulator(nodes, jobs, options.policy, settings).run()


def metrics_of(found: Run, without: Run | None, gpus: int) -> dict[str, Any]:
    """Return a run's figures for the report."""
    counted = [each for each in found.jobs if each.submitted >= found.measured_from]
    made = [each for each in found.consolidations if each.time >= found.measured_from]
    lost = sum(
        loss.milli_time
        for loss in found.losses
        if loss.cause is Cause.MOVED and loss.time >= found.measured_from
    )
    hours = (found.ended - found.measured_from) / HOUR
    waits = {str(size): _waits(each for each in counted if each.job.size is size) for size in SIZES}
    return {
        "waits": waits,
        "allocation_percent": round(
            100 * found.allocated_milli_time / MILLI_HOURS / gpus / hours, 3
        ),
        "consolidations": len(made),
        "moves": sum(each.moved for each in made),
        "lost_gpu_hours": round(lost / MILLI_HOURS, 2),
        "taken_to_cost_gpu_hours": round(sum(each.lost for each in made) / MILLI_HOURS, 2),
        "foreseen_gain_gpu_hours": round(sum(each.gained for each in made) / MILLI_HOURS, 2),
        "largest_part": round(max((each.lost / each.gained for each in made), default=0.0), 4),
        "gained_gpu_hours": None if without is None else round(_sooner(without, found), 2),
        "seconds_of_wall": round(found.seconds_of_wall, 1),
    }


def _waits(records: Iterable[JobRecord]) -> dict[str, Any]:
    waits = sorted((each.wait or 0.0) / HOUR for each in records if each.wait is not None)
    if not waits:
        return {"jobs": 0, "mean_hours": None, "p90_hours": None}
    return {
        "jobs": len(waits),
        "mean_hours": round(mean(waits), 4),
        "p90_hours": round(waits[int(0.9 * len(waits))], 4),
    }


def _sooner(without: Run, found: Run) -> float:
    """Return the GPU-hours by which jobs of several GPUs waited less."""
    before = {each.job.id: each for each in without.jobs}
    total = 0.0
    for each in found.jobs:
        if each.submitted >= found.measured_from and each.job.milli > WHOLE_GPU:
            total += each.job.milli * ((before[each.job.id].wait or 0.0) - (each.wait or 0.0))
    return total / MILLI_HOURS


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures by seed and ratio."""
    nodes = read_nodes(options.traces / "openb_node_list_gpu_node.csv")[:: options.nodes_every]
    pods = read_pods(options.traces / "openb_pod_list_default.csv")
    gpus = sum(len(node.devices) for node in nodes)
    runs: dict[str, dict[str, Any]] = {f"{ratio:g}": {} for ratio in (0.0, *options.ratios)}
    for seed in range(options.seeds):
        jobs = jobs_of(pods, nodes, options, seed)
        without = None
        for ratio in (0.0, *options.ratios):
            begun = time.perf_counter()
            found = run(nodes, jobs, options, ratio, seed)
            runs[f"{ratio:g}"][str(seed)] = metrics_of(found, without, gpus)
            without = found if without is None else without
            taken = time.perf_counter() - begun
            print(f"seed {seed}, ratio {ratio:g}: {taken:.0f} s", file=sys.stderr, flush=True)
    named = ("load", "hours", "warm_up", "measured", "movable", "checkpoint", "restart", "calm")
    parameters = {name: getattr(options, name) for name in (*named, "most", "durations", "policy")}
    return {
        "schema": SCHEMA,
        "parameters": parameters | {"nodes": len(nodes), "gpus": gpus},
        "ratios": runs,
    }


def table(report: dict[str, Any]) -> str:
    """Return the table: means over seeds, with standard deviations if there are several."""
    heads = (
        "ratio",
        "8 GPUs, mean wait, h",
        "p90",
        "4-7",
        "2-3",
        "1",
        "share",
        "consolidations",
        "moves",
        "GPU-hours lost",
        "gained",
        "cost / gain",
        "estimated",
        "largest",
        "allocated %",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for ratio, seeds in report["ratios"].items():
        runs = list(seeds.values())
        lost, gained = (
            sum(each[key] or 0.0 for each in runs) for key in ("lost_gpu_hours", "gained_gpu_hours")
        )
        cost, foreseen = (
            sum(each[key] for each in runs)
            for key in ("taken_to_cost_gpu_hours", "foreseen_gain_gpu_hours")
        )
        cells = [
            "off" if ratio == "0" else ratio,
            _spread(runs, "8", "mean_hours"),
            _spread(runs, "8", "p90_hours"),
            *(_spread(runs, size, "mean_hours") for size in ("4-7", "2-3", "one", "share")),
            f"{mean(each['consolidations'] for each in runs):.0f}",
            f"{mean(each['moves'] for each in runs):.0f}",
            f"{lost / len(runs):.1f}",
            "" if ratio == "0" else f"{gained / len(runs):.1f}",
            f"{lost / gained:.2f}" if gained > 0 else "",
            f"{cost / foreseen:.2f}" if foreseen else "",
            f"{max(each['largest_part'] for each in runs):.2f}" if foreseen else "",
            f"{mean(each['allocation_percent'] for each in runs):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(runs: Sequence[dict[str, Any]], size: str, figure: str) -> str:
    values = [each["waits"][size][figure] for each in runs]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{mean(known):.2f} ± {stdev(known):.2f}" if len(known) > 1 else f"{known[0]:.2f}"


def main() -> None:
    """Run all, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder of the openb CSVs")
    parser.add_argument("--policy", default="default", help="where jobs are placed")
    parser.add_argument("--load", type=float, default=0.95)
    parser.add_argument("--nodes-every", type=int, default=20, help="use every N-th node")
    parser.add_argument("--hours", type=float, default=4.0, help="mean duration of a job")
    parser.add_argument("--warm-up", type=float, default=4.0, help="lifetimes")
    parser.add_argument("--measured", type=float, default=8.0, help="lifetimes")
    parser.add_argument("--movable", type=float, default=0.5, help="fraction of movable jobs")
    parser.add_argument("--checkpoint", type=float, default=600.0, help="seconds")
    parser.add_argument("--restart", type=float, default=60.0, help="seconds")
    parser.add_argument("--calm", type=float, default=3600.0, help="seconds")
    parser.add_argument("--most", type=int, default=8, help="jobs moved for one")
    parser.add_argument(
        "--durations", default="none", choices=[str(each) for each in KnownDurations]
    )
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1, 0.25, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    options = parser.parse_args()
    report = measured(options)
    print(table(report))
    if options.write:
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, table(report)))


if __name__ == "__main__":
    main()
