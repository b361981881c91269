# SPDX-License-Identifier: Apache-2.0
"""The element of a tensor that is furthest off, and of several comparisons the worst."""

import math

import numpy as np
import pytest
import torch

from gpupack_workloads.reference.agreement import Agreement, closest, furthest, worst


def of(error, bound):
    doubles = {"dtype": torch.float64}
    return furthest(error=torch.tensor(error, **doubles), bound=torch.tensor(bound, **doubles))


def test_what_comes_closest_to_its_bound_is_shown():
    found = of([[1.0, 2.0], [3.0, 0.0]], [[2.0, 2.5], [9.0, 0.0]])
    assert (found.error, found.bound, found.holds) == (2.0, 2.5, True)


def test_an_exact_result_has_no_room_and_needs_none():
    assert of([0.0, 0.0], [0.0, 0.0]).holds
    assert not of([0.0, 0.5], [0.0, 0.0]).holds


@pytest.mark.parametrize(
    ("error", "bound"),
    [(math.nan, 1.0), (math.inf, 1.0), (math.inf, math.inf), (math.nan, math.nan), (0.0, math.inf)],
)
def test_neither_a_nan_nor_an_infinity_is_explained(error, bound):
    assert not of([0.5, error], [1.0, bound]).holds


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(
    "failed", [(math.inf, math.nan), (math.inf, math.inf), (0.0, math.inf), (0.5, 0.0), (3.0, 2.0)]
)
def test_of_several_the_one_that_fails_is_shown_wherever_it_stands(failed, turn):
    several = [Agreement(0.5, 1.0), Agreement(*failed), Agreement(0.0, 0.0)][::turn]
    assert not closest(several).holds


def test_of_several_checks_the_one_closest_to_its_bound_is_shown():
    several = [Agreement(0.0, 0.0), Agreement(1.0, 4.0), Agreement(1.0, 2.0), Agreement(0.0, 1.0)]
    assert closest(several) == Agreement(1.0, 2.0)
    assert closest([Agreement(0.0, 0.0)]).holds


@pytest.mark.parametrize("failed", [(math.nan, 1.0), (math.inf, math.inf), (1.0, math.nan)])
def test_an_element_that_must_be_exact_and_is_hides_none_that_is_no_number(failed):
    error, bound = ([0.0, 0.5, failed[0]], [0.0, 1.0, failed[1]])
    found = worst(error=np.array(error), bound=np.array(bound))
    assert not found.holds
    assert worst(error=np.array(error[:2]), bound=np.array(bound[:2])) == Agreement(0.5, 1.0)
