# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/packing.md: every workload filled, and kept busy at three loads.

    python benchmarks/packing.py --traces FOLDER [--write]

Each cell is one call of `gpupack-simulator replay`, whose JSON stays in --out: a second call makes
the tables from those that are there and runs only what is missing, or was run for other policies or
seeds. Another state of the code needs another --out. Fewer --workloads, --loads, --busy-seeds or
lifetimes (--warm-up, --measured) make smaller tables of the same shape.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from documents import replaced, row
from packing_differences import Difference, Figure, difference, judged

from gpupack_simulator import Size, size_of
from gpupack_simulator.inputs.openb import read_pods

WORKLOADS: Final = ("default", "cpu100", "gpushare40", "multigpu30", "gpuspec20")
LOADS: Final = (0.8, 0.95, 1.0)
SIZES: Final = (Size.SHARE, Size.ONE, Size.FEW, Size.HALF, Size.NODE)
BASE: Final = "fgd"
OURS: Final = "default"
DOCUMENT: Final = Path("docs/packing.md")
HEADS: Final = {
    "drop": ("workload", "load", "seeds", "allocation %"),
    "fifo-skip": (
        *("workload", "load", "seeds", "allocation %"),
        *("wait share", "one", "2-3", "4-7", "8", "by requested GPU"),
    ),
}
"""Dropped jobs do not wait."""

Runs = Mapping[str, Mapping[str, Any]]
"""Figures by seed."""
Results = Mapping[str, Runs]
"""By policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Runs to make, and the folder of their results."""

    traces: Path
    out: Path
    policies: Sequence[str]
    seeds: int
    busy_seeds: int
    warm_up: float
    measured: float
    processes: int | None

    def filling(self, workload: str) -> Results:
        """Return the results of the published experiment."""
        options = ("--demand", "1.3")
        return self._replay(f"fill-{workload}", workload, self.policies, self.seeds, options)

    def busy(self, workload: str, load: float, discipline: str) -> Results:
        """Return the results of jobs that arrive and depart."""
        times = f"{self.warm_up:g}-{self.measured:g}"
        return self._replay(
            f"busy-{workload}-{load:g}-{discipline}-{times}",
            workload,
            (BASE, OURS),
            self.busy_seeds,
            (
                *("--departures", "--load", f"{load:g}", "--discipline", discipline),
                *("--warm-up", f"{self.warm_up:g}", "--measured", f"{self.measured:g}"),
            ),
        )

    def pods(self, workload: str) -> Path:
        """Return the path of the trace's pods."""
        return self.traces / f"openb_pod_list_{workload}.csv"

    def _replay(
        self,
        name: str,
        workload: str,
        policies: Sequence[str],
        seeds: int,
        options: Sequence[str],
    ) -> Results:
        path = self.out / f"{name}.json"
        if not path.exists() or not _answers(_results(path), policies, seeds):
            self.out.mkdir(parents=True, exist_ok=True)
            command = [
                *(sys.executable, "-m", "gpupack_simulator", "replay"),
                *("--nodes", str(self.traces / "openb_node_list_gpu_node.csv")),
                *("--pods", str(self.pods(workload))),
                *("--policies", ",".join(policies), "--known-mix", "published", "--quiet"),
                *("--seeds", str(seeds), *options),
                *("--json", str(path)),
                *(("--processes", str(self.processes)) if self.processes else ()),
            ]
            print(" ".join(command), file=sys.stderr, flush=True)
            subprocess.run(command, check=True)  # noqa: S603 - our own command
        return _results(path)


def _answers(results: Results, policies: Sequence[str], seeds: int) -> bool:
    """Whether the results have the requested policies and seeds."""
    wanted = {str(seed) for seed in range(seeds)}
    return list(results) == list(policies) and all(
        runs.keys() == wanted for runs in results.values()
    )


def _results(path: Path) -> Results:
    results: Results = json.loads(path.read_text())["results"]
    return results


def filling_table(bench: Bench, workloads: Iterable[str]) -> str:
    """Return the allocated share of the GPUs at 100 and 130 % of demand."""
    policies = bench.policies
    lines = [row(["workload", *policies]), row(["---"] * (len(policies) + 1))]
    for workload in workloads:
        results = bench.filling(workload)
        cells = [
            "/".join(
                f"{_mean(results[policy], f'allocation_percent_at_{demand}'):.2f}"
                for demand in (100, 130)
            )
            for policy in policies
        ]
        lines.append(row([workload, *cells]))
    return "\n".join(lines)


def _mean(runs: Runs, figure: str) -> float:
    mean: float = statistics.mean(run[figure] for run in runs.values())
    return mean


def busy_table(
    bench: Bench, workloads: Iterable[str], loads: Iterable[float], discipline: str
) -> str:
    """Return our figures, with the difference to FGD; significantly worse ones are marked."""
    rows = {
        (workload, load): _differences(
            bench.busy(workload, load, discipline), bench.pods(workload), discipline
        )
        for workload in workloads
        for load in loads
    }
    figures = sum(map(len, rows.values()))
    heads = HEADS[discipline]
    lines = [row(heads), row(["---"] * len(heads))]
    for (workload, load), differences in rows.items():
        cells = [judged(one, figures) for one in differences]
        lines.append(row([workload, f"{load:g}", str(bench.busy_seeds), *cells]))
    return "\n".join(lines)


def _differences(results: Results, pods: Path, discipline: str) -> list[Difference]:
    ours, base = results[OURS], results[BASE]
    allocation = Figure("allocation", digits=2, more_is_better=True)
    found = [difference(allocation, *(_of(runs, _allocation) for runs in (ours, base)))]
    if discipline == "drop":
        return found
    for size in SIZES:
        wait = Figure(size, digits=3, more_is_better=False)
        found.append(difference(wait, *(_of(runs, _wait, size) for runs in (ours, base))))
    demand = _demand(pods)
    all_waits = Figure("all", digits=3, more_is_better=False, alone=True)
    return [*found, difference(all_waits, *(_of(r, _gpu_wait, demand) for r in (ours, base)))]


def _of(runs: Runs, figure: Any, *given: Any) -> list[float]:
    return [figure(run, *given) for run in runs.values()]


def _allocation(run: Mapping[str, Any]) -> float:
    return float(run["allocation_percent"])


def _wait(run: Mapping[str, Any], size: Size) -> float:
    """Return the wait in mean lifetimes; 0 if there was no job of that size."""
    return float(run["wait_lifetimes"].get(size) or 0.0)


def _gpu_wait(run: Mapping[str, Any], demand: Mapping[Size, float]) -> float:
    """Return the mean wait per requested GPU."""
    return sum(share * _wait(run, size) for size, share in demand.items())


def _demand(pods: Path) -> dict[Size, float]:
    """Return each size's share of the requested GPU capacity."""
    requests = [pod.request for pod in read_pods(pods)]
    whole = sum(request.milli for request in requests)
    return {
        size: sum(request.milli for request in requests if size_of(request) is size) / whole
        for size in SIZES
    }


def main() -> None:
    """Run what is missing, print the tables, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(".dev/packing"))
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--policies", default="best-fit,fgd,default", help="of filling")
    parser.add_argument("--seeds", type=int, default=10, help="of filling")
    parser.add_argument("--loads", nargs="+", type=float, default=LOADS)
    parser.add_argument("--busy-seeds", type=int, default=10, help="at least 2")
    parser.add_argument("--disciplines", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--warm-up", type=float, default=6.0, help="mean lifetimes left out")
    parser.add_argument("--measured", type=float, default=10.0, help="mean lifetimes")
    parser.add_argument("--processes", type=int, help="parallel processes; default: one per core")
    parser.add_argument("--only", choices=("filling", "busy"))
    parser.add_argument("--write", action="store_true", help=f"write them into {DOCUMENT}")
    options = parser.parse_args()
    bench = Bench(
        traces=options.traces,
        out=options.out,
        policies=options.policies.split(","),
        seeds=options.seeds,
        busy_seeds=options.busy_seeds,
        warm_up=options.warm_up,
        measured=options.measured,
        processes=options.processes,
    )
    tables = {}
    if options.only != "busy":
        tables["filling"] = filling_table(bench, options.workloads)
    for discipline in options.disciplines if options.only != "filling" else ():
        name = f"busy, {discipline}"
        tables[name] = busy_table(bench, options.workloads, options.loads, discipline)
    document = DOCUMENT.read_text() if options.write else ""
    for name, table in tables.items():
        print(f"\n{name}\n\n{table}")
        document = replaced(document, name, table) if options.write else ""
    if options.write:
        DOCUMENT.write_text(document)


if __name__ == "__main__":
    main()
