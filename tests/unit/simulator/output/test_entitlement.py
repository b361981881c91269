# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_queue import Cohort, Limit, Quota, Quotas
from gpupack_simulator.output.entitlement import Entitlement, water_fill


def rights(quotas, capacity, **demand):
    found = Entitlement(quotas, list(demand)).of(capacity, np.array([*demand.values()], float))
    return pytest.approx(dict(zip(demand, found, strict=True)))


def test_without_quotas_all_tenants_with_enough_demand_get_the_same():
    assert rights(Quotas(), 10, a=2, b=9, c=50) == {"a": 2, "b": 4, "c": 4}


def test_weights_divide_the_gpus_beyond_all_quotas():
    quotas = Quotas((Quota("a", weight=3.0), Quota("b")))
    assert rights(quotas, 8, a=20, b=20) == {"a": 6, "b": 2}


def test_a_quota_comes_first_up_to_its_demand():
    quotas = Quotas((Quota("a", {"H100": Limit(6)}), Quota("b")))
    assert rights(quotas, 8, a=20, b=20) == {"a": 7, "b": 1}
    assert rights(quotas, 8, a=3, b=20) == {"a": 3, "b": 5}


def test_a_tenant_of_weight_zero_gets_what_is_left_over():
    quotas = Quotas((Quota("a"), Quota("b", weight=0.0)))
    assert rights(quotas, 8, a=5, b=20) == {"a": 5, "b": 3}


def test_cohorts_aggregate_their_tenants():
    quotas = Quotas(
        (Quota("a", cohort="x"), Quota("b", cohort="x"), Quota("c")), (Cohort("x", weight=1.0),)
    )
    assert rights(quotas, 8, a=9, b=9, c=9) == {"a": 2, "b": 2, "c": 4}


@given(
    st.floats(0, 1e6),
    st.lists(st.tuples(st.floats(0, 1e5), st.floats(0.1, 10)), min_size=1, max_size=8),
)
def test_water_fill_leaves_nothing_over_and_gives_no_tenant_more_than_it_wants(amount, tenants):
    wants, weights = (np.array(of) for of in zip(*tenants, strict=True))
    parts = water_fill(amount, wants, weights)
    assert (parts <= wants + 1e-6).all()
    assert parts.sum() == pytest.approx(min(amount, wants.sum()), rel=1e-9, abs=1e-6)
    unmet = parts < wants - 1e-6
    if unmet.any():
        assert (parts / weights).max() <= (parts / weights)[unmet].min() * (1 + 1e-9) + 1e-6
