# SPDX-License-Identifier: Apache-2.0
"""The figures as JSON and CSV. Names of fields end in their unit.

`results.json` holds `results[policy][seed]`, a line of `results.csv` is one run. Each run has two
more files: `runs/POLICY/SEED.json` (figures over time and by node) and `SEED-jobs.csv`.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupack_placement import FloatArray
from gpupack_simulator.job import Size
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.figures import Figures
from gpupack_simulator.output.series import Steps
from gpupack_simulator.output.units import UNITS, Unit
from gpupack_simulator.output.usage import Usage
from gpupack_simulator.output.waits import Waits
from gpupack_simulator.record import Cause, End, JobRecord, Run, TimeUnit

SCHEMA = "gpupack.dev/simulation-results/v1"
RUN_SCHEMA = "gpupack.dev/simulation-run/v1"
DIGITS = 6
"""Digits of a figure in JSON and CSV: enough for every use, few enough to read."""

Json = dict[str, Any]


def results(digests: Sequence[Digest]) -> Json:
    """Return all compared figures."""
    by_policy: dict[str, Json] = {}
    for one in digests:
        by_policy.setdefault(one.policy, {})[str(one.seed)] = figures_json(one.figures, one.unit)
    return {
        "schema": SCHEMA,
        "time_unit": str(digests[0].unit) if digests else None,
        "nodes": digests[0].nodes if digests else 0,
        "gpus": digests[0].gpus if digests else 0,
        "parameters": common(digests),
        "results": by_policy,
    }


def common(digests: Sequence[Digest]) -> Json:
    """Return the parameters that all runs share."""
    if not digests:
        return {}
    first, *others = (one.parameters for one in digests)
    missing = object()
    return {
        name: value
        for name, value in first.items()
        if all(parameters.get(name, missing) == value for parameters in others)
    }


def figures_json(figures: Figures, time_unit: TimeUnit) -> Json:
    """Return the figures of one run; without a clock, figures of time are left out."""
    unit = UNITS[time_unit]
    plain = {
        "jobs": sum(figures.jobs.values()),
        **{f"jobs_{end}": figures.jobs.get(end, 0) for end in End},
        "arrived_percent": figures.arrived_percent,
        "allocation_percent": figures.allocation_percent,
        **{
            f"allocation_percent_at_{demand}": percent
            for demand, percent in figures.allocation_percent_at.items()
        },
        "fragmentation_percent": figures.fragmentation_percent,
    }
    clocked = {} if time_unit is TimeUnit.ARRIVAL else _clocked(figures, unit)
    ended = {
        f"wasted_{figures.waste.key}": _by_cause(figures.waste.gpu_time),
        "wasted_percent": {
            str(cause): figures.waste.percent(cause) for cause in figures.waste.gpu_time
        },
        "attempts_killed": figures.killed_attempts,
        "events": figures.events,
        "wall_seconds": figures.seconds_of_wall,
    }
    return _rounded(plain | clocked | ended)


def csv_table(digests: Sequence[Digest]) -> str:
    """Return one line per run; nested figures have names such as `wait_lifetimes.share`."""
    lines = [
        {"policy": one.policy, "seed": one.seed} | _flat(figures_json(one.figures, one.unit))
        for one in digests
    ]
    names = ["policy", "seed", *(name for line in lines for name in line)]
    return _csv(list(dict.fromkeys(names)), lines)


def run_json(run: Run, digest: Digest) -> Json:
    """Return one run over time and by node."""
    unit = UNITS[run.time_unit].key
    return {
        "schema": RUN_SCHEMA,
        "policy": run.policy,
        "seed": run.seed,
        "time_unit": str(run.time_unit),
        "parameters": dict(run.parameters),
        f"measured_from_{unit}": run.measured_from,
        f"ended_{unit}": run.ended,
        "figures": figures_json(digest.figures, run.time_unit),
        "series": {
            "arrived_percent": _series(digest.arrived),
            "allocation_percent": _series(digest.allocation),
            "fragmentation_percent": _series(digest.fragmentation),
            "queued_jobs": _series(digest.queue),
        },
        "node_allocation_percent": _by_node(digest.usage),
    }


def jobs_csv(run: Run) -> str:
    """Return one line per job, in the order of the run."""
    key = UNITS[run.time_unit].key
    lines = [_job_line(record, key) for record in run.jobs]
    return _csv(list(lines[0]) if lines else ["job"], lines)


def write_json(path: Path, content: Json) -> None:
    """Write readable JSON; the same content gives the same bytes."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def _clocked(figures: Figures, unit: Unit) -> Json:
    return {
        "queue_jobs_mean": figures.queue_mean,
        "queue_jobs_longest": figures.queue_longest,
        f"makespan_{unit.key}": figures.makespan,
        "wait_lifetimes": _in_lifetimes(figures, unit),
        **{
            f"{name}_{unit.key}": _waits(figures.waits, field)
            for name, field in {
                "wait_mean": "mean",
                "wait_median": "median",
                "wait_p90": "p90",
                "wait_p99": "p99",
                "wait_longest": "longest",
            }.items()
        },
        "wait_jobs": _waits(figures.waits, "jobs"),
        "wait_jobs_still_waiting": _waits(figures.waits, "still_waiting"),
        "slowdown_median": _waits(figures.waits, "slowdown_median"),
        "slowdown_p90": _waits(figures.waits, "slowdown_p90"),
        "slowdown_overall": _waits(figures.waits, "slowdown_overall"),
    }


def _in_lifetimes(figures: Figures, unit: Unit) -> Json:
    """Return mean waits divided by the mean duration of all jobs, which is 1 for lifetimes."""
    scale = 1.0 if unit is UNITS[TimeUnit.LIFETIME] else figures.duration_mean
    means = _waits(figures.waits, "mean")
    return {
        size: mean / scale if scale and mean is not None else None for size, mean in means.items()
    }


def _waits(waits: Mapping[Size, Waits], field: str) -> Json:
    return {str(size): getattr(of_size, field) for size, of_size in waits.items()}


def _by_cause(gpu_time: Mapping[Cause, float]) -> Json:
    return {str(cause): amount for cause, amount in gpu_time.items()}


def _series(steps: Steps) -> Json:
    return {"times": _listed(steps.times), "values": _listed(steps.values)}


def _by_node(usage: Usage | None) -> Json:
    if usage is None:
        return {}
    pairs = zip(usage.nodes, _listed(usage.mean), strict=True)
    return {str(node.name): mean for node, mean in pairs}


def _listed(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else round(value, DIGITS) for value in values.tolist()]


def _job_line(record: JobRecord, unit: str) -> Json:
    job, share = record.job, record.job.request.share
    return {
        "job": job.id,
        "size": str(job.size),
        "workers": job.workers,
        "gpus_per_worker": job.request.gpus if share is None else "",
        "share_milli_gpu": "" if share is None else share.milli,
        "priority": job.priority,
        f"duration_{unit}": job.duration,
        f"submitted_{unit}": record.submitted,
        f"started_{unit}": record.started,
        f"ended_{unit}": record.ended,
        f"wait_{unit}": record.wait,
        "end": str(record.end),
        "attempts": record.attempts,
        "nodes": " ".join(dict.fromkeys(placement.node for placement in record.placements)),
        "reason": record.reason,
    }


def _csv(names: Sequence[str], lines: Iterable[Json]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flat(nested: Json, prefix: str = "") -> Json:
    flat: Json = {}
    for name, value in nested.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _rounded(content: Json) -> Json:
    return {name: _round(value) for name, value in content.items()}


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return _rounded(value)
    return round(value, DIGITS) if isinstance(value, float) else value


def file_name(text: str) -> str:
    """Make a text valid in a file name: a policy may be an expression."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in text)
