# SPDX-License-Identifier: Apache-2.0
"""Are the published figures found again? `make reproduce TRACES=FOLDER`.

FOLDER holds the openb trace as it was published, and the published figures:
openb_node_list_gpu_node.csv, openb_pod_list_default.csv, published_allocation.csv. The mean of ten
seeds must lie within 0.15 points of them; the status is 1 where it does not.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import NamedTuple

WORKLOAD = "default"
POLICIES = {"fgd": "FGD", "best-fit": "BestFit"}
"""Our names and theirs."""
DEMANDS = (100, 130)
"""Percent of all GPUs that have been asked for."""
SEEDS = 10
MAX_POINTS = 0.15


class Figure(NamedTuple):
    """Allocation, in percent of all GPUs."""

    policy: str
    demand: int
    published: float
    found: float

    @property
    def is_reproduced(self) -> bool:
        """The published figures have two decimals, and so has the difference."""
        return abs(round(self.found - self.published, 2)) <= MAX_POINTS

    def __str__(self) -> str:
        away = f"{self.found - self.published:+.2f}"
        verdict = "" if self.is_reproduced else f"   more than {MAX_POINTS} away"
        return (
            f"{self.policy:<10}{self.demand:>7} %{self.published:>12.2f}{self.found:>9.2f}"
            f"{away:>9}{verdict}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    traces = parser.parse_args().traces
    results = replayed(traces, WORKLOAD)
    figures = compared(results, published((traces / "published_allocation.csv").read_text()))
    print(f"openb, {WORKLOAD}: allocation in percent of all GPUs, mean of {SEEDS} seeds")
    print(f"{'policy':<10}{'demand':>9}{'published':>12}{'found':>9}{'points':>9}")
    print(*figures, sep="\n")
    sys.exit(not all(figure.is_reproduced for figure in figures))


def replayed(traces, workload):
    """results[policy][seed], as gpupack-simulator writes them."""
    files = {"--nodes": "openb_node_list_gpu_node.csv", "--pods": f"openb_pod_list_{workload}.csv"}
    paths = [part for option, name in files.items() for part in (option, str(traces / name))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        options = ["--policies", ",".join(POLICIES), "--demand", "1.3", "--seeds", str(SEEDS)]
        command = [sys.executable, "-m", "gpupack_simulator", "replay", *paths, *options]
        subprocess.run([*command, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())["results"]


def published(text):
    """By policy and demand."""
    rows = [row for row in csv.DictReader(text.splitlines()) if row["workload"] == WORKLOAD]
    ours = {theirs: name for name, theirs in POLICIES.items()}
    return {
        (ours[row["policy"]], demand): float(row[f"alloc_at_{demand}"])
        for row in rows
        if row["policy"] in ours
        for demand in DEMANDS
    }


def compared(results, figures):
    """One figure for each policy and demand."""
    return [
        Figure(policy, demand, figure, found(results[policy], demand))
        for (policy, demand), figure in sorted(figures.items())
    ]


def found(by_seed, demand):
    """The mean over the seeds."""
    return mean(run[f"allocation_percent_at_{demand}"] for run in by_seed.values())


if __name__ == "__main__":
    main()
