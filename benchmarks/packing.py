# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/packing.md: every workload filled, and kept busy at three loads.

    python benchmarks/packing.py --traces FOLDER [--seeds 10] [--departure-seeds 5] [--write]

Each cell is one call of `gpupack-simulator replay`, whose JSON stays in --out: a second call makes
the tables from those that are there and runs only what is missing, or was run for other policies or
seeds. Another state of the code needs another --out. Differences to FGD are taken
seed by seed, since all policies see the same pods; the noise stated is twice the standard error of
the mean of those differences.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WORKLOADS: Final = ("default", "cpu100", "gpushare40", "multigpu30", "gpuspec20")
LOADS: Final = (0.8, 0.95, 1.0)
SIZES: Final = ("share", "one", "2-3", "4-7", "8")
BASE: Final = "fgd"
DOCUMENT: Final = Path("docs/packing.md")

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Figures by policy and seed."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What to run and where the results are kept."""

    traces: Path
    out: Path
    policies: str
    seeds: int
    departure_seeds: int

    def filling(self, workload: str) -> Results:
        """The published experiment."""
        return self._replay(f"fill-{workload}", workload, self.seeds, "--demand", "1.3")

    def busy(self, workload: str, load: float, discipline: str) -> Results:
        """Jobs come and go."""
        return self._replay(
            f"busy-{workload}-{load}-{discipline}",
            workload,
            self.departure_seeds,
            "--departures",
            *("--load", str(load), "--discipline", discipline),
        )

    def _replay(self, name: str, workload: str, seeds: int, *options: str) -> Results:
        path = self.out / f"{name}.json"
        if not path.exists() or not self._answers(_results(path), seeds):
            self.out.mkdir(parents=True, exist_ok=True)
            command = [
                *(sys.executable, "-m", "gpupack_simulator", "replay"),
                *("--nodes", str(self.traces / "openb_node_list_gpu_node.csv")),
                *("--pods", str(self.traces / f"openb_pod_list_{workload}.csv")),
                *("--policies", self.policies, "--known-mix", "published", "--quiet"),
                *("--seeds", str(seeds), *options),
                *("--json", str(path)),
            ]
            print(" ".join(command), file=sys.stderr, flush=True)
            subprocess.run(command, check=True)  # noqa: S603 - our own command
        return _results(path)

    def _answers(self, results: Results, seeds: int) -> bool:
        """Whether they are of the policies and seeds that are asked for."""
        asked = {str(seed) for seed in range(seeds)}
        return list(results) == self.policies.split(",") and all(
            runs.keys() == asked for runs in results.values()
        )


def _results(path: Path) -> Results:
    results: Results = json.loads(path.read_text())["results"]
    return results


def mean(results: Results, policy: str, figure: str) -> float:
    """Over the seeds."""
    return statistics.mean(run[figure] for run in results[policy].values())


def gain(ours: Iterable[float], base: Iterable[float]) -> str:
    """The mean difference, seed by seed, with twice its standard error."""
    differences = [a - b for a, b in zip(ours, base, strict=True)]
    noise = 2 * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{statistics.mean(differences):+.2f} ± {noise:.2f}"


def filling_table(bench: Bench, policies: list[str]) -> str:
    """Allocated share of the GPUs at 100 and 130 % of demand."""
    lines = [_row(["workload", *policies]), _row(["---"] * (len(policies) + 1))]
    for workload in WORKLOADS:
        results = bench.filling(workload)
        cells = [
            "/".join(
                f"{mean(results, policy, f'allocation_percent_at_{demand}'):.2f}"
                for demand in (100, 130)
            )
            for policy in policies
        ]
        lines.append(_row([workload, *cells]))
    return "\n".join(lines)


def busy_table(bench: Bench, policy: str, discipline: str) -> str:
    """Allocation, and waits of every size, against FGD."""
    heads = ["workload", "load", "allocation", "difference", *(f"wait {size}" for size in SIZES)]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for workload in WORKLOADS:
        for load in LOADS:
            results = bench.busy(workload, load, discipline)
            ours, base = list(results[policy].values()), list(results[BASE].values())
            cells = [
                f"{mean(results, policy, 'allocation_percent'):.2f}",
                gain(*([run["allocation_percent"] for run in runs] for runs in (ours, base))),
                *(_waits(ours, base, size) for size in SIZES),
            ]
            lines.append(_row([workload, f"{load:g}", *cells]))
    return "\n".join(lines)


def _waits(ours: list[Mapping[str, Any]], base: list[Mapping[str, Any]], size: str) -> str:
    waits = [
        [run["wait_lifetimes"][size] for run in runs if run["wait_lifetimes"].get(size) is not None]
        for runs in (ours, base)
    ]
    if not waits[0] or len(waits[0]) != len(waits[1]):
        return "–"  # noqa: RUF001 - a dash in a table
    return f"{statistics.mean(waits[0]):.3f} ({gain(*waits)})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def replaced(text: str, name: str, table: str) -> str:
    """The document with another table between the two marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Run what is missing, print the tables, and write them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(".dev/packing"))
    parser.add_argument("--policies", default="best-fit,fgd,default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--departure-seeds", type=int, default=5)
    parser.add_argument("--disciplines", nargs="+", default=["fifo-skip", "drop"])
    parser.add_argument("--write", action="store_true", help=f"write them into {DOCUMENT}")
    options = parser.parse_args()
    bench = Bench(
        options.traces, options.out, options.policies, options.seeds, options.departure_seeds
    )
    policies = options.policies.split(",")
    tables = {"filling": filling_table(bench, policies)}
    for discipline in options.disciplines:
        tables[f"busy, {discipline}"] = busy_table(bench, policies[-1], discipline)
    document = DOCUMENT.read_text() if options.write else ""
    for name, table in tables.items():
        print(f"\n{name}\n\n{table}")
        document = replaced(document, name, table) if options.write else ""
    if options.write:
        DOCUMENT.write_text(document)


if __name__ == "__main__":
    main()
