# SPDX-License-Identifier: Apache-2.0
"""Compares the work lost to preemption with and without reported checkpoints.

    python benchmarks/checkpoints.py --traces FOLDER [--write]

The workload is the openb slice of benchmarks/queueing.py, with fair share and preemption. A part of
the jobs (--saving, drawn for each of --seeds) saves its work at --interval and continues from there
in both runs. Only whether the queue knows the checkpoints differs. --write writes the report in
docs/reports, and the table of docs/queueing/measurements.md.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

from documents import replaced, table
from queueing import FAIR, Workload, add_openb_options, metrics_of, openb, run

SCHEMA: Final = "gpupack.dev/checkpoints/v1"
ROOT: Final = Path(__file__).parent.parent
REPORT: Final = ROOT / "docs/reports/checkpoints.json"
DOCUMENT: Final = ROOT / "docs/queueing/measurements.md"
MARKS: Final = "checkpoints"


def with_checkpoints(
    workload: Workload, saving: float, seed: int, *, interval: float, reported: bool
) -> Workload:
    """Return the workload in which a part of the jobs saves its work."""
    draw = Random(seed)  # noqa: S311  # not for secrets
    jobs = [
        replace(job, checkpoint=interval, reports_checkpoints=reported)
        if draw.random() < saving
        else job
        for job in workload.jobs
    ]
    return replace(workload, jobs=jobs)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return by interval, knowledge and seed the figures of each run."""
    workload = openb(options)
    return {
        f"{interval:g}": {
            name: {
                str(seed): _timed(
                    with_checkpoints(
                        workload, options.saving, seed, interval=interval, reported=reported
                    ),
                    f"{interval:g} s, {name}, seed {seed}",
                    options,
                    seed,
                )
                for seed in range(options.seeds)
            }
            for name, reported in (("not reported", False), ("reported", True))
        }
        for interval in options.interval
    }


def _timed(workload: Workload, what: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    begun = time.perf_counter()
    figures = metrics_of(run(workload, FAIR, options, seed), workload)
    print(f"{what}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    kept = ("wait_mean_hours", "preemptions", "lost_gpu_hours", "lost_percent_of_allocated")
    return {name: figures[name] for name in kept}


HEADS: Final = (
    "interval, s",
    "checkpoints",
    "preemptions",
    "GPU-hours lost",
    "by seed",
    "ratio",
    "mean wait, h",
)


def shown(report: dict[str, Any]) -> str:
    """Return the Markdown table of the report: means over the seeds."""
    rows = []
    for interval, runs in report["intervals"].items():
        base = _means(runs["not reported"])["lost_gpu_hours"]
        for name, seeds in runs.items():
            of = _means(seeds)
            rows.append(
                (
                    interval,
                    name,
                    f"{of['preemptions']:.0f}",
                    f"{of['lost_gpu_hours']:.1f}",
                    ", ".join(f"{each['lost_gpu_hours']:.0f}" for each in seeds.values()),
                    f"{of['lost_gpu_hours'] / base:.2f}",
                    f"{of['wait_mean_hours']:.2f}",
                )
            )
    return table(HEADS, rows)


def _means(seeds: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: fmean(each[name] for each in seeds.values()) for name in seeds["0"]}


def main() -> None:
    """Run all, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_openb_options(parser)
    parser.add_argument("--saving", type=float, default=0.5, help="part of jobs that save")
    parser.add_argument("--interval", type=float, nargs="+", default=[600.0, 1800.0, 3600.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    options = parser.parse_args()
    report = {
        "schema": SCHEMA,
        "policy": options.policy,
        "load": options.load,
        "saving": options.saving,
        "pods": options.pods,
        "nodes_every": options.nodes_every,
        "intervals": measured(options),
    }
    print(shown(report))
    if options.write:
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, shown(report)))


if __name__ == "__main__":
    main()
