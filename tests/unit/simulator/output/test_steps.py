# SPDX-License-Identifier: Apache-2.0
"""The cluster at one instant, as a terminal shows it."""

import io

from rich.console import Console
from run_builders import job, node

from gpupack_placement import Cluster, DeviceUuid, Grant, Holder, MiB, MilliGpu, NodeName, Placement
from gpupack_simulator import Breakdown, Component, Settings, Simulator
from gpupack_simulator.output.steps import headline, show
from gpupack_simulator.record import TimeUnit


def printed(*renderables, terminal=False):
    text = io.StringIO()
    colours = {"force_terminal": True, "color_system": "truecolor"} if terminal else {}
    console = Console(file=text, width=100, **colours)
    for renderable in renderables:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def at(time, nodes, jobs, **settings):
    simulator = Simulator(nodes, jobs, "first-fit", Settings(**settings))
    simulator.advance(time)
    return simulator.state()


def test_without_a_terminal_the_text_is_plain():
    state = at(0.0, [node("n1", 2)], [job("a", duration=2)])
    assert "\x1b" not in printed(show(state))
    assert "\x1b" in printed(show(state), terminal=True)


def test_a_shared_gpu_names_every_job_that_has_a_share():
    jobs = [job("a", milli=300, duration=2), job("b", milli=200, duration=2)]
    text = printed(show(at(0.0, [node("n1", 2)], jobs)))
    assert "0:a 30% + b 20%  1:free" in text
    assert "1.5" in text


def test_a_gpu_out_of_order_is_neither_busy_nor_free():
    down = Breakdown(Component(NodeName("n1"), DeviceUuid("n1/1")), 1.0, 9.0)
    text = printed(show(at(2.0, [node("n1", 2)], [job("a", duration=5)], breakdowns=(down,))))
    assert "0:a  1:out-of-order" in text


def test_every_state_of_a_job_is_shown():
    jobs = [
        job("runs", duration=5),
        job("waits", arrival=1.0, duration=5),
        job("late", arrival=7.0, duration=1),
        job("large", 3, duration=1),
    ]
    text = printed(show(at(2.0, [node("n1", 1)], jobs)))
    assert "runs, 2 of 5 steps done" in text
    assert "waits since 1" in text
    assert "arrives at 7" in text
    assert "dropped" in text


def test_holders_of_a_snapshot_are_named_though_they_are_no_jobs():
    cluster = Cluster([node("n1", 1)])
    grant = Grant(DeviceUuid("n1/0"), MilliGpu(1000), MiB(0))
    cluster.take(Holder("notebook"), Placement(NodeName("n1"), (grant,)))
    assert "0:notebook" in printed(show(at(0.0, cluster, [job("a", duration=1)])))


def test_a_large_cluster_is_one_line_a_kind():
    nodes = [node(f"n{i}", 8 if i % 2 else 4, model="A100") for i in range(60)]
    jobs = [job(f"j{i}", duration=2) for i in range(300)]
    text = printed(show(at(0.0, nodes, jobs)))
    assert "30   8 x A100" in text
    assert "300 jobs so far: 300 running" in text
    assert len(text.splitlines()) < 15


def test_the_headline_sums_up():
    state = at(3.0, [node("n1", 2)], [job("a", duration=9), job("b", 2, duration=9)])
    assert headline(state) == ("after step 3, first-fit: 1 of 2 GPUs allocated (50%), 1 job waits")


def test_times_that_are_no_steps_bear_their_unit():
    state = at(2.5, [node("n1", 1)], [job("a", duration=9)], time_unit=TimeUnit.SECOND)
    assert headline(state).startswith("at 2.5 s, ")


def test_a_cluster_without_gpus_can_be_shown():
    assert "0 of 0 GPUs" in printed(show(at(0.0, [node("cpu", 0)], [])))
