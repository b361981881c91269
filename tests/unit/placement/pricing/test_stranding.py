# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from placement_builders import share, whole

from gpupack_placement import RequestMix
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.pricing.stranding import CORES_PER_GPU, Stranding, cores_per_gpu


def stranded(worth, cpu, weight=1.0):
    found = Stranding(10.0, weight=weight).of(np.array([round(worth * UNIT)]), np.array([cpu]))
    return float(found[0]) / UNIT


def test_where_cpu_is_ample_nothing_is_stranded():
    assert stranded(2.0, 40_000) == pytest.approx(0.0, abs=1e-6)
    assert stranded(2.0, 10_000_000) == 0.0


def test_without_cpu_all_is_stranded():
    assert stranded(1.5, 0) == pytest.approx(1.5, abs=1e-3)
    assert stranded(8.0, 0) == pytest.approx(8.0, abs=1e-3)
    assert stranded(8.0, 0, weight=0.845) == pytest.approx(0.845 * 8.0, abs=1e-3)


def test_the_corner_is_soft():
    assert stranded(1.0, 10_000) == pytest.approx(0.058 * np.log(2), abs=1e-3)


def test_it_grows_with_worth_and_falls_with_cpu():
    rows = np.arange(-3000, 3000) * UNIT // 1000
    assert (np.diff(Stranding(10.0, weight=1.0).of(rows, np.zeros(6000, np.int64))) >= 0).all()


def test_cores_for_a_gpu_are_those_of_pods_that_ask_for_gpus():
    mix = RequestMix.of(
        [(whole(2, cpu=20_000), 1), (share(500, cpu=10_000), 2), (whole(0, cpu=90_000), 5)]
    )
    assert cores_per_gpu(mix) == pytest.approx(40 / 3)
    assert cores_per_gpu(RequestMix.of([(whole(0, cpu=1000), 1)])) == CORES_PER_GPU
    assert cores_per_gpu(RequestMix.of([(whole(1), 1)])) == CORES_PER_GPU
