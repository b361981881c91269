# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/packing.md on a mixed cluster: all policies, filling and departures.

    python benchmarks/mixed_clusters.py [--description examples/simulator/mixed.yaml] [--write]

All policies see the same jobs under a seed and learn from them; none is given the mix. Waits are
in mean lifetimes, of jobs by size. ↓: worse than the best of its column by more than
Student's t interval of 95 % of the mean difference over the seeds.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from documents import replaced, row
from packing import DOCUMENT, SIZES

from gpupack_placement import DEFAULT_POLICY, POLICIES
from gpupack_simulator import Size
from gpupack_simulator.experiments import Departing, Filling, KnownMix
from gpupack_simulator.inputs.mixedfile import read_mixed
from gpupack_simulator.mixed import mixed_pods
from gpupack_simulator.output.comparison import confidence_interval
from gpupack_simulator.output.figures import figures

DESCRIPTION: Final = Path("examples/simulator/mixed.yaml")
LOADS: Final = (0.8, 0.95, 1.0)
CONFIDENCE: Final = 0.95
NAMES: Final = ("default", *(name for name in sorted(POLICIES) if name != DEFAULT_POLICY))

Column = tuple[str, str]
"""The experiment, and the figure."""
Cells = dict[Column, list[float]]
"""By seed."""


def measured(policy: str, options: argparse.Namespace) -> Cells:
    """Return all figures of one policy."""
    style = read_mixed(options.description)
    pods, cells = mixed_pods(style), dict[Column, list[float]]()
    for seed in range(options.seeds):
        filling = Filling(style.nodes, pods, 1.3, KnownMix.NONE)
        found = figures(filling.run(policy, seed)).allocation_percent_at
        for demand, percent in found.items():
            cells.setdefault(("filling", f"at {demand} %"), []).append(percent or 0.0)
        for load in options.loads:
            busy = Departing(
                *(style.nodes, pods, load),
                warm_up=options.warm_up,
                measured=options.measured,
                known_mix=KnownMix.NONE,
            )
            of = figures(busy.run(policy, seed))
            name = f"load {load:g}"
            cells.setdefault((name, "allocation %"), []).append(of.allocation_percent or 0.0)
            for size in SIZES:
                waits = of.waits.get(size)
                cells.setdefault((name, f"wait {_short(size)}"), []).append(
                    (waits.mean or 0.0) if waits else 0.0
                )
        print(f"{policy}, seed {seed}", file=sys.stderr, flush=True)
    return cells


def _short(size: Size) -> str:
    return "8" if size is Size.NODE else str(size)


def table(found: Mapping[str, Cells], experiment: str) -> str:
    """Return one line per policy; those significantly worse than the best are marked."""
    columns = [column for column in next(iter(found.values())) if column[0] == experiment]
    lines = [
        row(["policy", *(figure for _, figure in columns)]),
        row(["---"] * (1 + len(columns))),
    ]
    for policy, cells in found.items():
        shown = [
            _cell(cells[column], [of[column] for of in found.values()], column)
            for column in columns
        ]
        lines.append(row([policy, *shown]))
    return "\n".join(lines)


def _cell(ours: Sequence[float], all_: Sequence[Sequence[float]], column: Column) -> str:
    wait = column[1].startswith("wait")
    sign = 1 if wait else -1
    best = min(all_, key=lambda of: sign * sum(of))
    behind = [sign * (a - b) for a, b in zip(ours, best, strict=True)]
    worse = sum(behind) / len(behind) > confidence_interval(behind, CONFIDENCE)
    mean = sum(ours) / len(ours)
    return f"{mean:.{3 if wait else 2}f}{' ↓' if worse else ''}"


def main() -> None:
    """Run all, print the tables, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--description", type=Path, default=DESCRIPTION)
    parser.add_argument("--policies", default=",".join(NAMES))
    parser.add_argument("--loads", nargs="+", type=float, default=LOADS)
    parser.add_argument("--seeds", type=int, default=10, help="at least 2")
    parser.add_argument("--warm-up", type=float, default=3.0, help="mean lifetimes left out")
    parser.add_argument("--measured", type=float, default=5.0, help="mean lifetimes")
    parser.add_argument("--write", action="store_true", help=f"write them into {DOCUMENT}")
    options = parser.parse_args()
    found = {name: measured(name, options) for name in options.policies.split(",")}
    document = DOCUMENT.read_text() if options.write else ""
    for experiment in ("filling", *(f"load {load:g}" for load in options.loads)):
        made = table(found, experiment)
        print(f"\n{experiment}\n\n{made}")
        document = replaced(document, f"mixed, {experiment}", made) if options.write else ""
    if options.write:
        DOCUMENT.write_text(document)


if __name__ == "__main__":
    main()
