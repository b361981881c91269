# SPDX-License-Identifier: Apache-2.0
"""Compares four queues on two workloads: waits by size, GPU-hours lost and fairness.

    python benchmarks/queueing.py --traces FOLDER [--write]

- **openb** with its real durations: the first --pods pods that were created from day 115 on
  (before that 27 in 115 days), on every --nodes-every-th node of the trace, with arrivals sped up
  until they offer --load (gpupack_simulator.arrivals). Tenants are the classes of service. One
  trace, one run.
- **philly-style**: drawn (gpupack_simulator.philly), on --nodes nodes of 8 GPUs, for --days, once
  for each of --seeds. The first --warm-up days are not measured.

A run ends when the last job has arrived: pending jobs count with their wait so far. A search for
victims without success is repeated after --retry seconds; the cluster's 5 s would make runs with
preemption many times longer. --write writes the report in docs/reports, and table and figure of
docs/queueing/measurements.md. --min-runtime is the minimum run time in seconds instead of the
cluster's default; --report writes the report elsewhere.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from documents import replaced
from queueing_report import DOCUMENT, MARKS, PICTURE, REPORT, drawn, table

from gpupack_placement import Device, DeviceUuid, MiB, Node, NodeName
from gpupack_queue import NO_PREEMPTION, Quotas
from gpupack_simulator import Job, Run, Sampling, Settings, Simulator, TimeUnit
from gpupack_simulator.arrivals import offered_load, scale_to_load
from gpupack_simulator.disciplines import DISCIPLINES, Discipline
from gpupack_simulator.inputs.openb import read_nodes, read_timed_jobs
from gpupack_simulator.output.fairness import fairness
from gpupack_simulator.output.figures import figures
from gpupack_simulator.output.waste import losses
from gpupack_simulator.philly import DAY, PhillyStyle, philly_jobs
from gpupack_simulator.record import Cause

SCHEMA: Final = "gpupack.dev/queueing/v1"
FAIR: Final = DISCIPLINES["fair-share"]
QUEUES: Final = {
    "FIFO": DISCIPLINES["fifo"],
    "backfill": DISCIPLINES["backfill"],
    "fair share, no preemption": replace(FAIR, rules=replace(FAIR.rules, preemption=NO_PREEMPTION)),
    "fair share": FAIR,
}
FROM_DAY: Final = 115
HOUR: Final = 3600.0
MILLI_HOURS: Final = 1000 * HOUR
SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes and jobs of a run. `parameters`: how they were made, for the report."""

    nodes: Sequence[Node]
    jobs: Sequence[Job]
    measured_from: float
    parameters: dict[str, Any]

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(node.devices) for node in self.nodes)


def add_openb_options(parser: argparse.ArgumentParser) -> None:
    """Add the options by which the slice of openb is made and run."""
    parser.add_argument("--traces", type=Path, required=True, help="folder of the openb CSVs")
    parser.add_argument("--policy", default="best-fit", help="where jobs are placed")
    parser.add_argument("--load", type=float, default=1.0, help="1: exactly all GPUs on average")
    parser.add_argument("--nodes-every", type=int, default=60, help="openb: use every N-th node")
    parser.add_argument("--pods", type=int, default=2000, help="of openb")
    parser.add_argument("--retry", type=float, default=300.0, help="seconds")


def openb(options: argparse.Namespace) -> Workload:
    """Return a slice of the trace with arrivals sped up."""
    nodes = read_nodes(options.traces / "openb_node_list_gpu_node.csv")[:: options.nodes_every]
    trace = read_timed_jobs(options.traces / "openb_pod_list_default.csv")
    start = FROM_DAY * DAY
    late = [replace(job, arrival=job.arrival - start) for job in trace.jobs if job.arrival >= start]
    capacity = 1000 * sum(len(node.devices) for node in nodes)
    jobs, factor = scale_to_load(late[: options.pods], options.load, capacity)
    parameters = {"pods": len(jobs), "arrivals_sped_up": factor, "nodes_every": options.nodes_every}
    return Workload(nodes, jobs, 0.0, parameters)


def philly(options: argparse.Namespace, seed: int) -> Workload:
    """Return a drawn workload."""
    style = PhillyStyle(load=options.load, gpus=8 * options.nodes, days=options.days)
    jobs = philly_jobs(style, Random(seed))  # noqa: S311  # not for secrets
    nodes = [_node(f"node-{number}") for number in range(options.nodes)]
    parameters = {"jobs": len(jobs), "days": options.days, "warm_up_days": options.warm_up}
    return Workload(nodes, jobs, options.warm_up * DAY, parameters)


def _node(name: str) -> Node:
    gpus = tuple(Device(DeviceUuid(f"{name}-{n}"), n, "P100", MiB(16_384)) for n in range(8))
    return Node(NodeName(name), gpus)


def run(workload: Workload, queue: Discipline, options: argparse.Namespace, seed: int) -> Run:
    """Run until the last job has arrived."""
    preemption = replace(queue.rules.preemption, retry_seconds=options.retry)
    queue = replace(queue, rules=replace(queue.rules, preemption=preemption))
    until = max(job.arrival for job in workload.jobs)
    settings = Settings(
        queue=queue,
        discipline=queue.name,
        seed=seed,
        time_unit=TimeUnit.SECOND,
        until=until,
        measured_from=workload.measured_from,
        sampling=Sampling(every=until / SAMPLES),
        occupancy=False,
    )
    return Simulator(workload.nodes, workload.jobs, options.policy, settings).run()


def metrics_of(found: Run, workload: Workload) -> dict[str, Any]:
    """Return a run's figures for the report."""
    made, fair = figures(found), fairness(found, Quotas(), capacity=1000 * workload.gpus)
    lost = losses(found, Cause.PREEMPTED)
    waits = {
        str(size): {
            "jobs": of.jobs,
            "still_waiting": of.still_waiting,
            "mean_hours": _hours(of.mean),
            "p90_hours": _hours(of.p90),
        }
        for size, of in made.waits.items()
    }
    return {
        "wait_mean_hours": _hours(made.wait_mean),
        "waits": waits,
        "jobs_dropped": sum(record.end == "dropped" for record in found.jobs),
        "allocation_percent": round(made.allocation_percent or 0.0, 3),
        "preemptions": len(lost),
        "lost_gpu_hours": round(sum(loss.milli_time for loss in lost) / MILLI_HOURS, 3),
        "lost_percent_of_allocated": _part(
            sum(loss.milli_time for loss in lost), found.allocated_milli_time
        ),
        "jain_mean": None if fair.mean is None else round(fair.mean, 5),
        "jain": [None if value != value else round(value, 4) for value in fair.index.tolist()],  # noqa: PLR0124 - NaN
        "hours": round((found.ended - found.measured_from) / HOUR, 3),
    }


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / HOUR, 4)


def _part(amount: float, of: float) -> float:
    return round(100 * amount / of, 3) if of else 0.0


def measured(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures by workload."""
    makers: dict[str, Callable[[int], Workload]] = {
        "openb": lambda _seed: openb(options),
        "philly-style": lambda seed: philly(options, seed),
    }
    for name, make in makers.items():
        seeds = range(options.seeds if name == "philly-style" else 1)
        made = {seed: make(seed) for seed in seeds}
        first = made[0]
        yield (
            name,
            {
                "nodes": len(first.nodes),
                "gpus": first.gpus,
                "tenants": len({job.tenant for job in first.jobs}),
                "offered_load": {
                    str(seed): round(offered_load(of.jobs, 1000 * of.gpus), 4)
                    for seed, of in made.items()
                },
                "made": {str(seed): of.parameters for seed, of in made.items()},
                "queues": {
                    queue: {
                        str(seed): _timed(name, queue, seed, workload, options)
                        for seed, workload in made.items()
                    }
                    for queue in QUEUES
                },
            },
        )


def _timed(
    name: str, queue: str, seed: int, workload: Workload, options: argparse.Namespace
) -> dict[str, Any]:
    begun = time.perf_counter()
    found = metrics_of(run(workload, QUEUES[queue], options, seed), workload)
    taken = time.perf_counter() - begun
    print(f"{name}, {queue}, seed {seed}: {taken:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Run all, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_openb_options(parser)
    parser.add_argument("--nodes", type=int, default=16, help="philly-style, of 8 GPUs each")
    parser.add_argument("--days", type=float, default=14.0, help="philly-style")
    parser.add_argument("--warm-up", type=float, default=4.0, help="philly-style, days")
    parser.add_argument("--seeds", type=int, default=3, help="philly-style")
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    parser.add_argument("--min-runtime", type=float, help="seconds before a job may be stopped")
    parser.add_argument("--report", type=Path, help="write the report there")
    options = parser.parse_args()
    if options.min_runtime is not None:
        _use_min_runtime(options.min_runtime)
    report = {
        "schema": SCHEMA,
        "policy": options.policy,
        "load": options.load,
        "retry_seconds": options.retry,
        "min_runtime_seconds": QUEUES["fair share"].rules.preemption.min_runtime_seconds,
        "workloads": dict(measured(options)),
    }
    print(table(report))
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    if options.write:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, table(report)))
        PICTURE.write_text(drawn(report))


def _use_min_runtime(seconds: float) -> None:
    preemption = replace(FAIR.rules.preemption, min_runtime_seconds=seconds)
    QUEUES["fair share"] = replace(FAIR, rules=replace(FAIR.rules, preemption=preemption))


if __name__ == "__main__":
    main()
