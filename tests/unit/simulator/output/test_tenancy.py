# SPDX-License-Identifier: Apache-2.0
"""Who held which GPU when."""

import numpy as np
from run_builders import done, held, job, node, outage, run

from gpupack_placement import Cluster, DeviceUuid, Grant, Holder, MiB, MilliGpu, NodeName, Placement
from gpupack_simulator import Simulator
from gpupack_simulator.job import Size
from gpupack_simulator.output.tenancy import MAX_ROWS, tenancy


def test_a_bar_is_one_job_on_one_gpu():
    jobs = (done("a", 2, start=0, duration=5),)
    found = tenancy(run(jobs=jobs, occupancy=(held("n2/0", "a", 0, 5), held("n2/1", "a", 0, 5))))
    assert [(b.row, b.start, b.end, b.size) for b in found.bars] == [
        (2, 0, 5, Size.FEW),
        (3, 0, 5, Size.FEW),
    ]


def test_gpus_held_at_the_end_are_drawn_to_the_end():
    (bar,) = tenancy(run(occupancy=(held("n1/0", "a", 3, None),))).bars
    assert bar.end == 10


def test_shares_of_one_gpu_are_drawn_next_to_each_other():
    occupancy = (
        held("n1/0", "a", 0, 4, 300),
        held("n1/0", "b", 1, 9, 500),
        held("n1/0", "c", 5, 9, 200),
    )
    assert [(b.job, b.lane) for b in tenancy(run(occupancy=occupancy)).bars] == [
        ("a", 0),
        ("b", 300),
        ("c", 0),
    ]


def test_no_bar_leaves_the_row_of_its_gpu():
    """500 are free in two parts of 200 and 300: nothing can be drawn in one piece there."""
    occupancy = (
        held("n1/0", "a", 0, 4, 200),
        held("n1/0", "b", 0, 9, 500),
        held("n1/0", "c", 5, 9, 500),
    )
    assert all(b.lane + b.milli <= 1000 for b in tenancy(run(occupancy=occupancy)).bars)


def test_a_node_out_of_order_takes_all_its_gpus_with_it():
    found = tenancy(run(outages=(outage("n1", 2, None), outage("n2", 1, 3, "n2/1"))))
    assert found.outages == ((0, 2, 10), (1, 2, 10), (3, 1, 3))


def test_a_large_cluster_is_a_raster_of_how_full_each_gpu_was():
    nodes = tuple(node(f"n{i}", 1) for i in range(MAX_ROWS + 1))
    occupancy = (held("n0/0", "a", 0, 5), held("n1/0", "b", 0, 10, 500))
    found = tenancy(run(nodes=nodes, occupancy=occupancy))
    assert found.bars == ()
    assert found.percent.mean(axis=1)[:3].tolist() == [50, 50, 0]


def test_rows_of_a_very_large_cluster_are_means_of_several_gpus():
    nodes = tuple(node(f"n{i}", 8) for i in range(1000))
    found = tenancy(run(nodes=nodes, occupancy=(held("n0/0", "a", 0, 10),)))
    assert found.gpus_per_row == 5
    assert np.isclose(found.percent[0], 20).all()
    assert len(found.percent) == 1600


def test_occupancy_that_was_not_recorded_is_not_drawn():
    assert tenancy(run()) is None


def test_holdings_of_a_snapshot_are_drawn():
    cluster = Cluster([node("n1", 2)])
    grant = Grant(DeviceUuid("n1/0"), MilliGpu(500), MiB(0))
    cluster.take(Holder("notebook"), Placement(NodeName("n1"), (grant,)))
    found = tenancy(Simulator(cluster, [job("a", duration=4)], "best-fit").run())
    assert {(b.row, b.job, b.milli) for b in found.bars} == {(0, "notebook", 500), (1, "a", 1000)}
