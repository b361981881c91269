# SPDX-License-Identifier: Apache-2.0
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gpupack_placement.pricing.knapsack import filled

items = st.dictionaries(st.integers(1, 9), st.integers(0, 20), max_size=4)


@given(items, st.integers(0, 20))
def test_every_gap_is_filled_as_well_as_by_trying_everything(worth_by_size, capacity):
    sizes = sorted(worth_by_size)
    worths = [worth_by_size[size] for size in sizes]
    filling = filled(sizes, worths, capacity)
    for room in range(capacity + 1):
        counts = product(*(range(room // size + 1) for size in sizes))
        fits = [c for c in counts if sum(n * s for n, s in zip(c, sizes, strict=True)) <= room]
        best = max(sum(n * w for n, w in zip(c, worths, strict=True)) for c in fits)
        assert filling.worth[room] == best


@given(items, st.integers(0, 20))
def test_the_counts_fit_and_are_worth_what_is_said(worth_by_size, capacity):
    sizes = sorted(worth_by_size)
    filling = filled(sizes, [worth_by_size[size] for size in sizes], capacity)
    counts = filling.counts(sizes)
    assert sum(n * size for n, size in zip(counts, sizes, strict=True)) <= capacity
    worth = sum(n * worth_by_size[size] for n, size in zip(counts, sizes, strict=True))
    assert worth == filling.worth[-1]
