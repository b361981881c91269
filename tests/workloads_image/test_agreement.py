# SPDX-License-Identifier: Apache-2.0
"""The element of a tensor that is furthest off."""

import math

import pytest
import torch

from gpupack_workloads.reference.agreement import furthest


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
