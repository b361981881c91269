# SPDX-License-Identifier: Apache-2.0
"""Elastic against rigid jobs in a full cluster: GPU-hours used and waits, on openb as it was.

    python benchmarks/elastic_gangs.py --traces FOLDER [--report FILE]

Pods of openb and their real durations, as in benchmarks/queueing.py. Of those of one GPU a seed
makes a fraction --part gangs of --width workers with the pod's
request; a gang's work is its duration at full width. In one run they are rigid, in the other they
start with --least workers; all else is equal. Each worker beyond the least adds --efficiency of a
worker, and a change of the width costs --pause seconds. A run ends when the last job has arrived:
the work done by then is compared, and the GPU-hours held.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, Final

from queueing import HOUR, MILLI_HOURS, QUEUES, Workload, openb, run

from gpupack_simulator import Job, Run
from gpupack_simulator.record import End

SCHEMA: Final = "gpupack.dev/elastic-gangs/v1"
QUEUE: Final = "fair share"


def gangs(jobs: list[Job], options: argparse.Namespace, seed: int) -> list[Job]:
    """Turn some of the jobs of whole GPUs into gangs of the same duration at full width."""
    random = Random(seed)  # noqa: S311  # not for secrets
    found = []
    for job in jobs:
        drawn = random.random() < options.part
        is_gang = drawn and job.request.gpus == 1
        found.append(replace(job, workers=options.width) if is_gang else job)
    return found


def elastic(jobs: list[Job], options: argparse.Namespace) -> list[Job]:
    """Return the same jobs with elastic gangs."""
    return [
        replace(
            job,
            min_workers=options.least,
            efficiency=options.efficiency,
            resize_pause=options.pause,
        )
        if job.workers > 1
        else job
        for job in jobs
    ]


def metrics_of(found: Run) -> dict[str, Any]:
    """Return a run's figures for the report."""
    wide = [record for record in found.jobs if record.job.workers > 1]
    rest = [record for record in found.jobs if record.job.workers == 1]
    widths = [record.mean_width for record in wide if record.mean_width is not None]
    return {
        "gpu_hours_held": round(found.allocated_milli_time / MILLI_HOURS, 1),
        "gangs": len(wide),
        "gangs_through": sum(record.end is End.SUCCEEDED for record in wide),
        "others_through": sum(record.end is End.SUCCEEDED for record in rest),
        "wait_hours_gangs": round(mean(record.wait or 0.0 for record in wide) / HOUR, 4),
        "wait_hours_others": round(mean(record.wait or 0.0 for record in rest) / HOUR, 4),
        "preempted_whole": sum(record.preemptions for record in found.jobs),
        "gpu_hours_lost": round(sum(loss.milli_time for loss in found.losses) / MILLI_HOURS, 1),
        "resizes": sum(record.resizes for record in wide),
        "mean_width": round(mean(widths), 3) if widths else None,
        "seconds_of_wall": round(found.seconds_of_wall, 1),
    }


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return both runs and their ratios by seed."""
    made, seeds = openb(options), {}
    for seed in range(options.seeds):
        rigid = gangs(list(made.jobs), options, seed)
        both = {
            name: metrics_of(
                run(Workload(made.nodes, jobs, 0.0, made.parameters), QUEUES[QUEUE], options, seed)
            )
            for name, jobs in (("rigid", rigid), ("elastic", elastic(rigid, options)))
        }
        ratios = {
            name: round(both["elastic"][name] / both["rigid"][name], 4)
            for name in ("gpu_hours_held", "gangs_through", "wait_hours_gangs", "wait_hours_others")
            if both["rigid"][name]
        }
        seeds[str(seed)] = {**both, "elastic_by_rigid": ratios}
        print(seed, json.dumps(seeds[str(seed)], indent=1), flush=True)
    reported = ("nodes_every", "pods", "load", "part", "width", "least", "efficiency", "pause")
    parameters = {name: getattr(options, name) for name in (*reported, "retry", "policy")}
    gpus = {"nodes": len(made.nodes), "gpus": made.gpus, "queue": QUEUE}
    return {"schema": SCHEMA, "parameters": parameters | gpus, "seeds": seeds}


def main() -> None:
    """Run all, and write the report if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder of the openb CSVs")
    parser.add_argument("--policy", default="best-fit", help="where jobs are placed")
    parser.add_argument("--load", type=float, default=0.8, help="of the trace, before gangs")
    parser.add_argument("--nodes-every", type=int, default=60, help="use every N-th node")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--part", type=float, default=0.1, help="of one-GPU pods, gangs")
    parser.add_argument("--width", type=int, default=4, help="workers of a gang")
    parser.add_argument("--least", type=int, default=1, help="minimum workers of an elastic gang")
    parser.add_argument("--efficiency", type=float, default=0.9)
    parser.add_argument("--pause", type=float, default=30.0, help="seconds per resize")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--retry", type=float, default=300.0, help="seconds")
    parser.add_argument("--report", type=Path, help="write the report there")
    options = parser.parse_args()
    report = measured(options)
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
