# SPDX-License-Identifier: Apache-2.0
"""Compares backfill with exact, learned and no durations.

    python benchmarks/learned_durations.py --write

Philly-style jobs (gpupack_simulator.philly) on --nodes nodes of 8 GPUs, once for each of --seeds.
Tenants submit jobs repeatedly: a tenant has --kinds kinds of job. The same durations are assigned
to kinds so that --alike of the variance of their ranks' normal scores is between kinds and the rest
within a kind; that is an assumption. EASY backfill by age; a job that was backfilled on an estimate
is preempted for the queue head after --max-backfill-delay seconds. --write writes the report in
docs/reports and the table of docs/queueing/measurements.md.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any, Final

from documents import replaced, row
from queueing import Workload, philly

from gpupack_simulator import Job, Sampling, Settings, Simulator, TimeUnit
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations
from gpupack_simulator.output.figures import figures
from gpupack_simulator.output.waste import losses
from gpupack_simulator.record import Cause

SCHEMA: Final = "gpupack.dev/learned-durations/v1"
COMPARED: Final = (KnownDurations.EXACT, KnownDurations.LEARNED, KnownDurations.NONE)
"""Kinds of durations to compare; the drawn jobs have no walltimes."""
REPORT: Final = Path("docs/reports/learned-durations.json")
DOCUMENT: Final = Path("docs/queueing/measurements.md")
MARKS: Final = "durations"
HOUR: Final = 3600.0
MILLI_HOURS: Final = 1000 * HOUR
SIZES: Final = {"one": "1 GPU", "2-3": "2-3", "4-7": "4-7", "8": "8 or more"}
FIGURES: Final = {
    "guests_waited_for": ("queue heads delayed", 0),
    "delay_mean_seconds": ("mean delay, s", 0),
    "delay_largest_seconds": ("largest delay, s", 0),
    "stopped": ("preempted", 0),
    "lost_percent": ("% of work lost", 1),
    "allocated_percent": ("allocated %", 1),
}


def of_kinds(jobs: Sequence[Job], kinds: int, alike: float, random: Random) -> list[Job]:
    """Return the same jobs with durations reassigned so that those of a tenant's kind are alike."""
    between, within = sqrt(alike), sqrt(1 - alike)
    centres: dict[tuple[str, int], float] = {}
    dealt = []
    for job in jobs:
        kind = random.randrange(kinds)
        centre = centres.setdefault((job.tenant, kind), random.gauss(0.0, between))
        dealt.append((centre + random.gauss(0.0, within), job, kind))
    longer = sorted(range(len(dealt)), key=lambda number: dealt[number][0])
    durations = sorted(job.duration for job in jobs)
    found = list(jobs)
    for number, duration in zip(longer, durations, strict=True):
        _, job, kind = dealt[number]
        found[number] = replace(job, duration=duration, kind=f"kind-{kind}")
    return found


def run(
    workload: Workload, known: KnownDurations, options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Run until the last job has arrived."""
    easy = DISCIPLINES["backfill"]
    rules = replace(easy.rules, max_backfill_delay_seconds=options.max_backfill_delay)
    settings = Settings(
        queue=replace(easy, rules=rules, durations=known),
        discipline=easy.name,
        seed=seed,
        time_unit=TimeUnit.SECOND,
        until=max(job.arrival for job in workload.jobs),
        measured_from=workload.measured_from,
        sampling=Sampling(every=HOUR),
        occupancy=False,
    )
    simulator = Simulator(workload.nodes, workload.jobs, options.policy, settings)
    record = simulator.run()
    made, lost, delays = (
        figures(record),
        losses(record, Cause.PREEMPTED),
        simulator.speculative_delays,
    )
    milli_time = sum(loss.milli_time for loss in lost)
    return {
        "wait_mean_hours": _hours(made.wait_mean),
        "waits_hours": {str(size): _hours(of.mean) for size, of in made.waits.items()},
        "guests_waited_for": len(delays),
        "delay_mean_seconds": round(mean(delays), 1) if delays else 0.0,
        "delay_largest_seconds": round(max(delays, default=0.0), 1),
        "stopped": len(lost),
        "lost_percent": round(100 * milli_time / record.allocated_milli_time, 3),
        "allocated_percent": round(made.allocation_percent or 0.0, 3),
    }


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / HOUR, 4)


def table(report: Mapping[str, Any]) -> str:
    """Return the table, a row for each kind of durations: mean ± standard deviation over seeds."""
    heads = ["durations", "mean wait, h", *SIZES.values(), *(head for head, _ in FIGURES.values())]
    lines = [row(heads), row(["---"] * len(heads))]
    for known, runs in report["durations"].items():
        waits = [
            _mean_and_spread([one["waits_hours"][size] for one in runs.values()], 2)
            for size in SIZES
        ]
        mean_wait = _mean_and_spread([one["wait_mean_hours"] for one in runs.values()], 2)
        cells = [
            _mean_and_spread([one[name] for one in runs.values()], digits)
            for name, (_, digits) in FIGURES.items()
        ]
        lines.append(row([known, mean_wait, *waits, *cells]))
    return "\n".join(lines)


def _mean_and_spread(values: Sequence[float], digits: int) -> str:
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{spread}"


def main() -> None:
    """Run all, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="best-fit", help="where jobs are placed")
    parser.add_argument("--load", type=float, default=1.0, help="1: exactly all GPUs on average")
    parser.add_argument("--nodes", type=int, default=16, help="of 8 GPUs each")
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--warm-up", type=float, default=4.0, help="days")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", type=int, default=8, help="kinds of jobs of each tenant")
    parser.add_argument("--alike", type=float, default=0.7, help="variance between kinds, 0 to 1")
    parser.add_argument("--max-backfill-delay", type=float, default=300.0, help="seconds")
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    options = parser.parse_args()
    workloads = {}
    for seed in range(options.seeds):
        drawn, random = philly(options, seed), Random(seed)  # noqa: S311  # not for secrets
        jobs = of_kinds(drawn.jobs, options.kinds, options.alike, random)
        workloads[seed] = replace(drawn, jobs=jobs)
    report = {
        "schema": SCHEMA,
        "options": {name: of for name, of in vars(options).items() if name != "write"},
        "durations": {
            known.value: {
                str(seed): run(of, known, options, seed) for seed, of in workloads.items()
            }
            for known in COMPARED
        },
    }
    print(table(report))
    if options.write:
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, table(report)))


if __name__ == "__main__":
    main()
