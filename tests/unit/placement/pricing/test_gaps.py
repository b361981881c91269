# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import share, whole

from gpupack_placement import RequestMix
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.pricing.gaps import plain, worth_of_gaps


def worth(*counts):
    found = worth_of_gaps(RequestMix.of(counts)) / UNIT
    return lambda milli: float(found[milli])


def test_a_gap_into_which_no_request_fits_is_worth_nothing():
    gap = worth((share(400), 1), (whole(1), 1))
    assert [gap(0), gap(399)] == [0.0, 0.0]
    assert 0 < gap(400) == gap(799) < gap(800) <= gap(1000)


def test_what_a_gap_holds_twice_is_worth_twice():
    gap = worth((share(250), 4), (whole(1), 1))
    assert [gap(500), gap(750)] == pytest.approx([2 * gap(250), 3 * gap(250)], abs=1e-5)


def test_an_idle_gpu_is_worth_at_least_what_whole_ones_pay():
    gap = worth((share(600), 1), (whole(1), 9))
    assert gap(1000) == pytest.approx(1.0, abs=0.3)
    assert gap(1000) >= gap(999)


def test_sizes_that_are_no_tenths_are_counted_to_the_milli():
    gap = worth((share(333), 3), (whole(2), 1))
    assert gap(332) == 0.0 < gap(333) == gap(665) < gap(666)


def test_without_gpu_requests_a_gap_is_worth_its_size():
    assert (worth_of_gaps(RequestMix.of([(whole(0), 1)])) == plain()).all()
    assert worth_of_gaps(RequestMix.of([(whole(0), 1)]))[500] == UNIT // 2


def test_many_share_sizes_are_distinguished_to_ten_milli():
    gap = worth(*((share(100 + i), 200 - i) for i in range(150)), (whole(1), 100))
    assert 0 == gap(99) < gap(120) == gap(129) < gap(1000) == pytest.approx(1.0, abs=0.1)
    assert [gap(m) for m in range(1001)] == sorted(gap(m) for m in range(1001))
