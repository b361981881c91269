# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.bandwidth import algorithm_gb_per_s, all_reduce_bus_gb_per_s


def test_algorithm_bandwidth_is_size_over_time():
    assert algorithm_gb_per_s(size_bytes=2_000_000_000, seconds=0.5) == pytest.approx(4.0)


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_counts_how_often_a_byte_crosses_a_link(ranks, factor):
    bus = all_reduce_bus_gb_per_s(size_bytes=10**9, seconds=1.0, ranks=ranks)
    assert bus == pytest.approx(factor)


def test_one_rank_alone_uses_no_bus():
    assert all_reduce_bus_gb_per_s(size_bytes=10**9, seconds=1.0, ranks=1) == 0


def test_eight_h200_reach_the_published_figure_at_its_time():
    bus = all_reduce_bus_gb_per_s(size_bytes=4 * 2**30, seconds=0.02055, ranks=8)
    assert bus == pytest.approx(365.7, abs=0.2)
