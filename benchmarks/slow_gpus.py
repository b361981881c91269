# SPDX-License-Identifier: Apache-2.0
"""Measures the gain of knowing which GPUs are slow: nodes of 8 GPUs, Philly-style jobs.

    python benchmarks/slow_gpus.py [--write]

A fraction --slow of the GPUs has --least to 0.89 of the best speed (uniform): burn-ins would mark
them Slow. The others have 1 less up to --spread. The slowest GPU of a job sets its pace. For each
seed the same jobs run four times: on equal GPUs; on these GPUs without knowledge of their speeds;
with the slow GPUs used last, as in phase Slow; and in addition with all speeds, by a policy with
`pace`.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any, Final

from documents import replaced

from gpupack_placement import Device, DeviceUuid, Health, MiB, MilliCpu, Node, NodeName
from gpupack_queue import NO_PREEMPTION
from gpupack_simulator import Job, Run, Sampling, Settings, Simulator, TimeUnit
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations
from gpupack_simulator.philly import DAY, SIZES, PhillyStyle, philly_jobs
from gpupack_simulator.record import End

SCHEMA: Final = "gpupack.dev/slow-gpus/v1"
HOUR: Final = 3600.0
REPORT: Final = Path("docs/reports/slow-gpus.json")
DOCUMENT: Final = Path("docs/acceptance.md")
MARKS: Final = "slow-gpus"
SLOW: Final = 0.89
"""A burn-in marks a GPU Slow below this fraction of the median."""
KINDS: Final = ("alike", "not known", "used last", "used last, and pace")
WITH_PACE: Final = "+pace"
STEP: Final = 20
"""Per mille, as the scheduler rounds what was measured (gpupack_scheduler/speeds.py)."""


def cluster(
    options: argparse.Namespace,
    *,
    known: Mapping[DeviceUuid, float],
    measured: Mapping[DeviceUuid, float],
) -> list[Node]:
    """Return nodes of 8 H200; GPUs known as slow are used last.

    Args:
        options: the command's options.
        known: GPUs known as slow.
        measured: speed of each GPU as policies see it.
    """
    nodes = []
    for number in range(options.nodes):
        name = f"node-{number}"
        uuids = [DeviceUuid(f"{name}/{index}") for index in range(8)]
        devices = tuple(
            Device(
                uuid,
                index,
                "NVIDIA H200",
                MiB(143_771),
                health=Health.DEGRADED if uuid in known else Health.HEALTHY,
                speed=round(1000 * measured.get(uuid, 1.0) / STEP) * STEP,
            )
            for index, uuid in enumerate(uuids)
        )
        nodes.append(Node(NodeName(name), devices, MilliCpu(192_000), MiB(2_000_000)))
    return nodes


def slow(options: argparse.Namespace, random: Random) -> dict[DeviceUuid, float]:
    """Return the speeds of the slow GPUs."""
    every = _uuids(options)
    chosen = random.sample(every, round(options.slow * len(every)))
    return {uuid: random.uniform(options.least, SLOW) for uuid in chosen}


def _uuids(options: argparse.Namespace) -> list[DeviceUuid]:
    numbers = itertools.product(range(options.nodes), range(8))
    return [DeviceUuid(f"node-{node}/{index}") for node, index in numbers]


def run(
    nodes: Sequence[Node],
    jobs: Sequence[Job],
    speeds: dict[DeviceUuid, float],
    options: argparse.Namespace,
    seed: int,
    kind: str,
) -> Run:
    """Run until all jobs have ended."""
    fair = DISCIPLINES["fair-share"]
    # Without preemption, which does not depend on speeds.
    rules = replace(fair.rules, preemption=NO_PREEMPTION)
    policy = options.policy + (WITH_PACE if kind == KINDS[-1] else "")
    settings = Settings(
        queue=replace(fair, rules=rules, durations=KnownDurations.NONE),
        discipline=fair.name,
        seed=seed,
        time_unit=TimeUnit.SECOND,
        measured_from=options.warm_up * DAY,
        sampling=Sampling(every=DAY),
        occupancy=False,
        speeds=speeds,
    )
    return Simulator(nodes, jobs, policy, settings).run()


def metrics_of(found: Run, options: argparse.Namespace) -> dict[str, Any]:
    """Return by size how much longer jobs took than their work, and the time since submission."""
    begin = options.warm_up * DAY
    counted = [e for e in found.jobs if e.submitted >= begin and e.end is End.SUCCEEDED]
    sizes = {}
    for gpus in SIZES:
        mine = [each for each in counted if each.job.request.gpus == gpus]
        runs = [each.ended - each.started for each in mine if each.ended and each.started]
        work = [each.job.duration for each in mine]
        whole = [each.ended - each.submitted for each in mine if each.ended]
        sizes[str(gpus)] = {
            "jobs": len(mine),
            "longer_percent": round(100 * (sum(runs) / sum(work) - 1), 2),
            "completion_hours": round(mean(whole) / HOUR, 3),
        }
    lost = sum(
        (each.ended - each.started - each.job.duration) * (each.job.request.gpus or 0)
        for each in counted
        if each.ended and each.started
    )
    gpu_seconds = sum(each.job.duration * (each.job.request.gpus or 0) for each in counted)
    return {"sizes": sizes, "lost_percent": round(100 * lost / gpu_seconds, 3)}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures by load, kind and seed."""
    loads: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for load in options.loads:
        kinds = loads[f"{load:g}"] = {kind: [] for kind in KINDS}
        for seed in range(options.seeds):
            random = Random(f"{seed}:slow-gpus")  # noqa: S311  # not for secrets
            known = slow(options, random)
            style = PhillyStyle(load=load, gpus=8 * options.nodes, days=options.days)
            jobs = philly_jobs(style, random)
            spread = {uuid: 1 - random.uniform(0, options.spread) for uuid in _uuids(options)}
            speeds = spread | known
            plain = cluster(options, known={}, measured={})
            last = cluster(options, known=known, measured={})
            paced = cluster(options, known=known, measured=speeds)
            for kind, nodes, real in zip(
                KINDS, (plain, plain, last, paced), ({}, speeds, speeds, speeds), strict=True
            ):
                kinds[kind].append(metrics_of(run(nodes, jobs, real, options, seed, kind), options))
            print(f"load {load:g}, seed {seed}", file=sys.stderr, flush=True)
    named = ("nodes", "slow", "least", "spread", "days", "warm_up", "policy", "seeds")
    parameters = {name: getattr(options, name) for name in named}
    return {"schema": SCHEMA, "parameters": parameters, "loads": loads}


def table(report: dict[str, Any]) -> str:
    """Return the table: means over seeds, with standard deviations."""
    heads = (
        "load",
        "slow GPUs are",
        "GPU-time lost %",
        "8 GPUs longer by %",
        "4",
        "2",
        "1",
        "8 GPUs, submission to end, h",
        "all others",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for load, kinds in report["loads"].items():
        for kind, runs in kinds.items():
            longer = [
                _spread([r["sizes"][size]["longer_percent"] for r in runs]) for size in "8421"
            ]
            cells = [load, "not there" if kind == "alike" else kind]
            cells += [_spread([each["lost_percent"] for each in runs]), *longer]
            cells += [_spread([r["sizes"]["8"]["completion_hours"] for r in runs])]
            cells += [_spread([_others(r) for r in runs])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _others(run: dict[str, Any]) -> float:
    smaller = [each for size, each in run["sizes"].items() if size != "8"]
    jobs = sum(each["jobs"] for each in smaller)
    return float(sum(each["jobs"] * each["completion_hours"] for each in smaller) / jobs)


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def main() -> None:
    """Run all, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--slow", type=float, default=0.05, help="fraction of the GPUs")
    parser.add_argument("--least", type=float, default=0.5, help="speed of the slowest, 0 to 1")
    parser.add_argument("--spread", type=float, default=0.04, help="spread of the others")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.7, 0.9])
    parser.add_argument("--days", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=10.0, help="days")
    parser.add_argument("--policy", default="default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    options = parser.parse_args()
    report = measured(options)
    print(table(report))
    if options.write:
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, table(report)))


if __name__ == "__main__":
    main()
