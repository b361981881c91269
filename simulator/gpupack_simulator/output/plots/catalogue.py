# SPDX-License-Identifier: Apache-2.0
"""The catalogue of plots, in the order of the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.gantt import gantt
from gpupack_simulator.output.plots.levels import allocation, fragmentation, queue
from gpupack_simulator.output.plots.nodes import nodes
from gpupack_simulator.output.plots.style import policies_of, save
from gpupack_simulator.output.plots.waits import waits
from gpupack_simulator.output.plots.wasted import wasted
from gpupack_simulator.output.report import Picture
from gpupack_simulator.output.results import file_name
from gpupack_simulator.record import TimeUnit


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `name`: that of its files. `explanation`: one sentence for a first-time reader."""

    name: str
    title: str
    explanation: str
    draw: Callable[[], Figure]


def plots(digests: Sequence[Digest]) -> list[Plot]:
    """Return the plots that apply to these runs; one of GPUs over time for each policy."""
    clocked = bool(digests) and digests[0].unit is not TimeUnit.ARRIVAL
    return [
        *_levels(digests),
        *(_queueing(digests) if clocked else []),
        *([_waste(digests)] if clocked else []),
        _nodes(digests),
        *(_gantt(digests, policy) for policy in policies_of(digests) if clocked),
    ]


def _levels(digests: Sequence[Digest]) -> list[Plot]:
    return [
        Plot(
            "allocation",
            "Allocated GPU capacity",
            "How much of all GPU capacity jobs hold: higher is better; the band is one standard "
            "deviation over seeds.",
            partial(allocation, digests),
        ),
        Plot(
            "fragmentation",
            "Fragmented GPU capacity",
            "What is free and yet of no use to the jobs that are to be expected, as the measure of "
            "fragmentation gradient descent counts it: lower is better.",
            partial(fragmentation, digests),
        ),
    ]


def _queueing(digests: Sequence[Digest]) -> list[Plot]:
    return [
        Plot(
            "waits",
            "Waits by size of job",
            "How many percent of the jobs of each size waited at most so long: a curve further up "
            "and to the left is better.",
            partial(waits, digests),
        ),
        Plot(
            "queue",
            "Waiting jobs",
            "How many jobs wait at each time: lower is better.",
            partial(queue, digests),
        ),
    ]


def _waste(digests: Sequence[Digest]) -> Plot:
    return Plot(
        "wasted",
        "Capacity that no job used",
        "Where the rest of the capacity went, by cause: a better policy can win back what is too "
        "little on one node and what lacks CPU or memory.",
        partial(wasted, digests),
    )


def _nodes(digests: Sequence[Digest]) -> Plot:
    return Plot(
        "nodes",
        "Allocation of every node",
        "Each row is a node, each panel a policy, the first seed of each: dark is free, bright is "
        "full.",
        partial(nodes, digests),
    )


def _gantt(digests: Sequence[Digest], policy: str) -> Plot:
    of_policy = [one for one in digests if one.policy == policy]
    seed = next((one.seed for one in of_policy if one.tenancy is not None), of_policy[0].seed)
    return Plot(
        f"gantt-{file_name(policy)}",
        f"Every GPU over time: {policy}, seed {seed}",
        "Each row is a GPU (of a large cluster, a few), from left to right what it was held by.",
        partial(gantt, of_policy),
    )


def draw_plots(
    digests: Sequence[Digest], folder: Path, first: Sequence[Plot] = ()
) -> list[Picture]:
    """Draw `first` and then all plots, each as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_picture(plot, folder) for plot in (*first, *plots(digests))]


def _picture(plot: Plot, folder: Path) -> Picture:
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = save(plot.draw(), folder, plot.name)
    return Picture(plot.title, plot.explanation, png.read_bytes(), svg.read_bytes())
