# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_cost import (
    Holding,
    Part,
    Prices,
    Tariff,
    Tariffs,
    allocated,
    difference,
)

TARIFFS = Tariffs.of(
    [Tariff(0.0, "EUR", Prices({"*": 1})), Tariff(5400.0, "EUR", Prices({"*": 2}))]
)


def holding(start, end, *, milli=1000, tenant="team", model="H100"):
    parts = (Part(model, milli),)
    return Holding(tenant=tenant, cohort="", job="", parts=parts, start=start, end=end)


def by_hour(sums):
    return {(key.hour // 3600, key.tariff): amount for key, amount in sums.items()}


def test_it_is_cut_at_full_hours_and_where_prices_change():
    found = by_hour(allocated(holding(3000, 8000, milli=500), TARIFFS))
    assert found == {(0, 0): 300_000, (1, 0): 900_000, (1, 1): 900_000, (2, 1): 400_000}


@pytest.mark.parametrize("end", [100, 50])
def test_what_ends_before_it_starts_is_nothing(end):
    assert allocated(holding(100, end), TARIFFS) == {}


def test_gpus_of_several_models_count_for_each():
    parts = (Part("A", 1000), Part("B", 300))
    held = Holding(tenant="t", cohort="c", job="j", parts=parts, start=0, end=10)
    found = {key.model: amount for key, amount in allocated(held, TARIFFS).items()}
    assert found == {"A": 10_000, "B": 3000}


MOMENTS = st.integers(0, 40_000).map(float)
HOLDINGS = st.none() | st.builds(
    holding, MOMENTS, MOMENTS, milli=st.sampled_from([1, 1000]), tenant=st.sampled_from("ab")
)


@given(before=HOLDINGS, after=HOLDINGS)
def test_a_correction_makes_sums_as_if_it_had_been_counted_rightly_at_first(before, after):
    sums = {} if before is None else allocated(before, TARIFFS)
    for key, amount in difference(before, after, TARIFFS).items():
        sums[key] = sums.get(key, 0.0) + amount
    expected = {} if after is None else allocated(after, TARIFFS)
    assert {key: amount for key, amount in sums.items() if amount} == expected


def test_to_count_a_year_once_more_costs_nothing():
    year = holding(0, 365 * 86_400)
    longer = holding(0, 365 * 86_400 + 60)
    assert difference(year, year, TARIFFS) == {}
    assert len(difference(year, longer, TARIFFS)) == 1
