# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.bandwidth import algorithm_gb_per_s, bus_gb_per_s


def test_algorithm_bandwidth_is_size_over_time():
    assert algorithm_gb_per_s(size_bytes=2_000_000_000, seconds=0.5) == pytest.approx(4.0)


def test_bus_bandwidth_counts_how_often_a_byte_crosses_a_link():
    bus = bus_gb_per_s(size_bytes=4 * 2**30, seconds=0.02055, crossings=2 * 7 / 8)
    assert bus == pytest.approx(365.8, abs=0.1)
