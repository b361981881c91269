# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from gpupack_placement import DecisionError
from gpupack_placement.pricing import cutting_stock
from gpupack_placement.pricing.cutting_stock import Stock, prices


def test_a_slot_is_worth_its_part_of_the_gpu_where_shares_fill_it():
    slots, gpu = prices(Stock((5,), (4.0,), 0.0, 10), [1.0])
    assert (slots.tolist(), gpu) == (pytest.approx([0.5]), pytest.approx(1.0))


def test_a_share_that_wastes_the_rest_of_a_gpu_cannot_pay_for_it():
    slots, gpu = prices(Stock((6,), (1.0,), 1.0, 10), [1.0])
    assert (slots.tolist(), gpu) == (pytest.approx([0.6]), pytest.approx(1.0))


def test_sizes_that_fill_a_gpu_together_share_its_price():
    slots, gpu = prices(Stock((3, 7), (1.0, 1.0), 1.0, 10), [1.0])
    assert slots.sum() == pytest.approx(1.0)
    assert gpu == pytest.approx(1.0)


def test_where_supply_is_ample_nothing_has_a_price():
    slots, gpu = prices(Stock((5,), (0.5,), 0.25, 10), [1.0])
    assert (slots.tolist(), gpu) == ([0.0], 0.0)


def test_prices_are_means_over_the_scales():
    _, ample = prices(Stock((5,), (1.0,), 0.0, 10), [0.5])
    _, scarce = prices(Stock((5,), (1.0,), 0.0, 10), [4.0])
    _, both = prices(Stock((5,), (1.0,), 0.0, 10), [0.5, 4.0])
    assert both == pytest.approx((ample + scarce) / 2)


def test_without_a_solver_the_error_is_ours_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(DecisionError, match="highspy is not installed; install gpupack-placement"):
        prices(Stock((5,), (1.0,), 0.0, 10), [1.0])


def test_a_solver_that_runs_out_of_time_is_an_error_of_ours(monkeypatch):
    monkeypatch.setattr(cutting_stock, "SECONDS", 0.0)
    with pytest.raises(DecisionError, match="HiGHS found no prices in 0 s"):
        prices(Stock((3, 4, 5), (1.0, 2.0, 3.0), 1.0, 10), [1.0])
