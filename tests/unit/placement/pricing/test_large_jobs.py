# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import share, whole

from gpupack_placement import RequestMix
from gpupack_placement.pricing.large_jobs import LARGE_JOB_WEIGHT, with_large_jobs


def weights(*counts):
    return {d.request: d.weight for d in with_large_jobs(RequestMix.of(counts)).demands}


def test_without_large_jobs_the_typical_pods_stay():
    assert weights((whole(1), 3), (share(500), 1)) == {whole(1): 0.75, share(500): 0.25}


def test_each_size_gets_weight_as_it_is_large_whatever_its_frequency():
    found = weights((whole(1), 995), (whole(2), 2), (whole(8), 2), (whole(8, cpu=9000), 1))
    total = 1 + LARGE_JOB_WEIGHT * (1 + 2 / 8)
    assert found[whole(2)] == pytest.approx(LARGE_JOB_WEIGHT * 2 / 8 / total)
    assert found[whole(8)] == pytest.approx(LARGE_JOB_WEIGHT / 2 / total)
    assert found[whole(8)] == found[whole(8, cpu=9000)]


def test_pods_that_differ_by_the_nodes_memory_are_one_kind():
    assert weights((whole(2, memory=1000), 1), (whole(2, memory=2000), 1)) == {whole(2): 1.0}
