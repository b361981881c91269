# SPDX-License-Identifier: Apache-2.0
"""Percentiles of callers' waits, and the result.

`ttft`: from when a request was due to its first token. `itl`: from one token of an answer to the
next; of all gaps of all answers. `latency`: from when it was due to its last token. Requests that
were refused or failed count in none of them, and are counted by themselves.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from gpupack_workloads.errors import WorkloadError
from gpupack_workloads.inference_load.arrivals import Traffic
from gpupack_workloads.inference_load.client import Outcome
from gpupack_workloads.results import Result, Scalar, headline

PERCENTILES = (50, 90, 99)
MS = 1000.0


def figures_of(outcomes: Sequence[Outcome], traffic: Traffic) -> dict[str, Scalar]:
    """Return figures by name.

    Raises:
        WorkloadError: no request got an answer.
    """
    answers = [each for each in outcomes if each.answered]
    if not answers:
        troubles = sorted({each.trouble or "" for each in outcomes})[:3]
        raise WorkloadError(f"none of {len(outcomes)} requests was answered: {troubles}")
    waits: dict[str, list[float]] = {
        "ttft": [each.times[0] - each.due for each in answers],
        "itl": [gap for each in answers for gap in gaps(each.times)],
        "latency": [each.times[-1] - each.due for each in answers],
    }
    figures: dict[str, Scalar] = {}
    for name, seconds in waits.items():
        for percentile in PERCENTILES if seconds else ():
            figures[f"{name}_p{percentile}_ms"] = ms(np.percentile(seconds, percentile))
    tokens = sum(len(each.tokens) for each in answers)
    rejected = sum(each.rejected for each in outcomes)
    end = max(each.times[-1] for each in answers)
    return figures | {
        "output_tokens_per_s": round(tokens / end, 2),
        "requests_per_s": round(len(answers) / end, 3),
        "requests": len(outcomes),
        "answered": len(answers),
        "rejected": rejected,
        "failed": len(outcomes) - len(answers) - rejected,
        "sent_late_p99_ms": ms(np.percentile([each.sent - each.due for each in outcomes], 99)),
        **asdict(traffic),
    }


def gaps(times: Sequence[float]) -> list[float]:
    """Return the time from each to the next."""
    return [after - before for before, after in itertools.pairwise(times)]


def ms(seconds: float) -> float:
    """Return milliseconds, with three digits after the point."""
    return round(float(seconds) * MS, 3)


def rows_of(figures: dict[str, Scalar]) -> list[dict[str, Scalar]]:
    """Return the percentiles as a table."""
    rows: list[dict[str, Scalar]] = []
    for name in ("ttft", "itl", "latency"):
        names = [f"{name}_p{each}_ms" for each in PERCENTILES]
        row: dict[str, Scalar] = {
            each.removeprefix(f"{name}_"): figures[each] for each in names if each in figures
        }
        if row:
            rows.append({"quantity": name, **row})
    return rows


def summarise(
    figures: dict[str, Scalar],
    more: dict[str, Scalar],
    *,
    verified: bool,
    simulated: bool,
) -> Result:
    """Return the result."""
    first, between = figures["ttft_p99_ms"], figures.get("itl_p99_ms", 0.0)
    figure = f"p99 {first:.0f} ms to first token, {between:.1f} between"
    return Result(
        workload="inference-load",
        headline=headline(figure, simulated=simulated),
        verified=verified,
        simulated=simulated,
        metrics=figures | share() | more,
        rows=rows_of(figures),
    )


def share() -> dict[str, Scalar]:
    """Return the share that this container has, if its environment says so."""
    names = {
        "share_percent": "GPUPACK_DEVICE_PERCENT",
        "share_memory_mib": "GPUPACK_DEVICE_MEMORY_MIB",
        "mps_thread_percent": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    }
    return {
        name: int(text)
        for name, variable in names.items()
        if (text := os.environ.get(variable, "")).isdecimal()
    }
