# SPDX-License-Identifier: Apache-2.0
"""Plots are drawn for every kind of run; what they look like is judged by eye."""

import pytest
from run_builders import done, dropped, held, node, outage, run, sample, waiting

from gpupack_simulator.output.digest import digest
from gpupack_simulator.output.plots.catalogue import plots
from gpupack_simulator.output.plots.gantt import gantt
from gpupack_simulator.output.plots.levels import allocation
from gpupack_simulator.output.plots.style import save
from gpupack_simulator.output.plots.waits import waits
from gpupack_simulator.output.plots.wasted import wasted
from gpupack_simulator.output.results import file_name
from gpupack_simulator.record import TimeUnit

CAUSES = {"fragmented": 1000, "no-demand": 1000}


def busy(policy="fgd", seed=0, **kw):
    defaults = {
        "jobs": (
            done("a", 2, start=0, duration=5),
            done("b", start=4, duration=2, milli=500),
            done("c", 8, start=9, duration=1),
            waiting("d", now=10),
        ),
        "samples": tuple(
            sample(t, 2000, arrived=600 * t, fragmented=100 * t, queued=t % 3, free_by_cause=CAUSES)
            for t in range(10)
        ),
        "occupancy": (held("n1/0", "a", 0, 5), held("n1/1", "b", 4, 6, 500)),
        "outages": (outage("n2", 3, 6),),
        "allocated_milli_time": 20_000.0,
    }
    return digest(run(policy=policy, seed=seed, **(defaults | kw)))


def large(**kw):
    nodes = tuple(node(f"n{i}", 1 + i % 8, model=f"M{i % 3}") for i in range(50))
    return busy(nodes=nodes, **kw)


def filling(policy, seed):
    return busy(policy, seed, time_unit=TimeUnit.ARRIVAL, jobs=(dropped("a"),))


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


CASES = {
    "nothing": [],
    "one run": [busy()],
    "an empty run": [digest(run())],
    "no nodes and no time": [digest(run(nodes=(), ended=0.0))],
    "ten policies": [busy(f"policy-{n}") for n in range(10)],
    "several seeds": [busy(p, seed) for p in ("fgd", "best-fit") for seed in range(3)],
    "seeds that end at different times": [busy(ended=10.0), busy(seed=1, ended=12.0)],
    "a large cluster": [large()],
    "no clock": [filling(p, seed) for p in ("fgd", "best-fit") for seed in range(2)],
    "seconds": [busy(time_unit=TimeUnit.SECOND)],
    "lifetimes": [busy(time_unit=TimeUnit.LIFETIME, measured_from=5.0)],
    "one policy recorded less": [busy(), digest(run(policy="best-fit"))],
}


@pytest.mark.parametrize("case", CASES)
def test_every_plot_of_a_comparison_is_drawn(case):
    for plot in plots(CASES[case]):
        assert plot.draw().axes


def test_every_plot_can_be_laid_out():
    """Where labels and legends go is settled only when a picture is rendered."""
    for plot in plots(CASES["a large cluster"]):
        plot.draw().draw_without_rendering()


def test_a_plot_is_saved_as_png_and_svg(tmp_path):
    (plot, *_) = plots([busy()])
    png, svg = save(plot.draw(), tmp_path, plot.name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_the_same_runs_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        save(gantt([busy()]), tmp_path, name)
    for suffix in ("png", "svg"):
        one, two = (tmp_path / f"{name}.{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_picture_of_nothing_says_why():
    for plot in plots([]):
        (text,) = texts(plot.draw())
        assert text.endswith(".")


def test_there_is_a_gantt_picture_of_each_policy():
    names = [plot.name for plot in plots([busy("fgd"), busy("0.7*fgd+0.3*best-fit")])]
    assert names[-2:] == ["gantt-fgd", "gantt-0.7_fgd_0.3_best-fit"]


def test_a_wide_enough_bar_shows_the_name_of_its_job():
    assert set(texts(gantt([busy()]))) == {"a", "b"}


def test_a_job_that_is_named_as_a_size_colours_its_own_bars_alone():
    occupancy = (held("n1/0", "one", 0, 5), held("n1/1", "b", 4, 6))
    jobs = (done("one", start=0, duration=5), done("b", start=4, duration=2))
    (axes,) = gantt([busy(jobs=jobs, occupancy=occupancy, outages=())]).axes
    assert [len(drawn.get_paths()) for drawn in axes.collections] == [1, 1]


def test_no_legend_covers_data():
    for plot in plots(CASES["several seeds"]):
        assert all(axes.get_legend() is None for axes in plot.draw().axes)


def test_every_axis_with_ticks_has_a_label():
    for plot in plots(CASES["several seeds"]):
        for axes in plot.draw().axes:
            assert axes.get_xlabel() or axes.get_ylabel() or not axes.axison


def test_the_plot_says_that_no_job_of_a_size_waited():
    found = texts(waits([digest(run(jobs=(done("a", start=0, duration=1),)))]))
    assert found == ["none of them waited"]


def test_policies_that_did_the_same_share_a_line():
    digests = [
        busy("fgd"),
        busy("best-fit"),
        busy("random", jobs=(done("a", start=5, duration=1),)),
    ]
    for plot in (allocation(digests), waits(digests)):
        labels = [line.get_label() for line in plot.axes[0].lines]
        assert labels[0].startswith("fgd, best-fit")
        assert len(labels) <= 2


def test_a_bar_of_waste_bears_the_name_of_its_policy():
    (axes,) = wasted([busy("fgd"), busy("best-fit")]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fgd", "best-fit"]


def test_a_policy_makes_a_file_name():
    assert file_name("0.7*fgd + 0.3*x/../y") == "0.7_fgd___0.3_x_.._y"
