# SPDX-License-Identifier: Apache-2.0
"""The report on two sets of quotas: the common page, with fairness over time first."""

from functools import partial
from pathlib import Path
from typing import Final

from gpupack_simulator.output.plots.catalogue import Plot, draw_plots
from gpupack_simulator.output.plots.fairness import fairness_over_time
from gpupack_simulator.output.quotas import QuotaChange, tables, verdict
from gpupack_simulator.output.report import render
from gpupack_simulator.output.results import Json

WORDS: Final = {
    "lost to preemption": "what jobs had done when they were stopped for others, and do again.",
    "fairness": "Jain's index of the GPU-time that each tenant had, by the GPU-time that it had a "
    "right to under the proposed quotas (weighted max-min), in 60 windows of time: 1 is fair.",
}


def quota_report(
    found: QuotaChange, folder: Path, *, jobs: int, parameters: Json, command: str
) -> str:
    """Return the HTML page; the plots are also written to the folder."""
    fair = {name: side.fairness for name, side in found.sides.items()}
    plot = Plot(
        "fairness",
        "Fairness over time",
        "Jain's index of what tenants had by what they had a right to under the proposed quotas: "
        "higher is fairer, 1 is the most.",
        partial(fairness_over_time, fair, found.unit),
    )
    one = found.today.digest
    return render(
        title="GPU quotas: what if",
        heading="What would have changed under the proposed quotas?",
        verdict=verdict(found),
        compared=f"The same {jobs:,} jobs on the same {one.nodes:,} nodes with {one.gpus:,} GPUs, "
        f"under today's quotas ({parameters['quotas_before']}) and under the proposed ones "
        f"({parameters['quotas']}).",
        policies=[],
        seeds=[one.seed],
        nodes=one.nodes,
        gpus=one.gpus,
        jobs=[jobs],
        parameters=parameters,
        tables=[table for table in tables(found) if table.metrics],
        pictures=draw_plots(found.digests, folder, [plot]),
        words=WORDS,
        command=command,
    )
