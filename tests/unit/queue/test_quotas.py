# SPDX-License-Identifier: Apache-2.0
"""What may be used, borrowed and lent in a tree of cohorts; of 8 GPUs if nothing else is said."""

import pytest
from queue_world import cohort, limit, limits, quota

from gpupack_queue import ANY, Limit, Quota, Quotas, Tenant
from gpupack_queue.errors import InvalidQuota
from gpupack_queue.quotas.tree import Tree
from gpupack_queue.quotas.usage import Usage
from gpupack_queue.rules import Rules


def usage(*quotas, cohorts=(), gpus=8, **used):
    tree = Tree(Quotas(tuple(quotas), tuple(cohorts)), {ANY: gpus * 1000})
    found = Usage(tree)
    for tenant, number in used.items():
        found.add(Tenant(tenant), {ANY: number * 1000})
    return found


def left(found, tenant):
    """GPUs that the tenant may still use."""
    return found.available(found.tree.tenant(Tenant(tenant)), ANY) / 1000


def test_without_lending_limits_the_gpus_of_the_cluster_are_the_limit():
    assert left(usage(quota("a", 4)), "b") > 1_000_000


@pytest.mark.parametrize(("used", "expected"), [(0, 3), (2, 1), (3, 0)])
def test_no_tenant_borrows_what_is_not_lent(used, expected):
    """The owner has a quota of 6 and lends 1 of them; 2 GPUs belong to no quota."""
    found = usage(quota("owner", limit(6, lending=1)), guest=used)
    assert left(found, "guest") == expected
    assert left(found, "owner") == 8 - used


def test_borrowed_gpus_do_not_use_up_the_unlent_quota():
    found = usage(quota("owner", limit(4, lending=0)), quota("other", limit(0)), owner=6)
    assert (left(found, "owner"), left(found, "other")) == (2, 2)


@pytest.mark.parametrize(("used", "expected"), [(0, 5), (4, 1), (5, 0)])
def test_a_borrowing_limit_is_in_addition_to_the_quota(used, expected):
    assert left(usage(quota("a", limit(3, borrowing=2)), a=used), "a") == expected


def test_the_limits_of_a_cohort_are_for_all_of_it_together():
    lab = cohort("lab", limit(2, borrowing=1))
    found = usage(quota("a", 1, cohort="lab"), quota("b", cohort="lab"), cohorts=[lab], a=1, b=2)
    assert (left(found, "a"), left(found, "b")) == (1, 1)


def test_reverted_usage_leaves_no_entries():
    found = usage(quota("owner", limit(4, lending=1)), owner=6)
    found.add(Tenant("owner"), {ANY: 6000}, sign=-1)
    assert all(not any(found.used_by(node).values()) for node in found.tree.all())


def test_a_share_is_what_is_borrowed_by_weight_of_the_dominant_model():
    tree = Tree(Quotas((quota("a", 2, T4=1, weight=2.0),)), {ANY: 8000, "T4": 4000})
    found = Usage(tree)
    found.add(Tenant("a"), {ANY: 4000, "T4": 3000})
    assert found.shares(Tenant("a")) == (0.25,)  # 2 of 4 T4 beyond 2 of 8 others, by weight 2


def test_a_tenant_within_its_quota_has_no_borrowed_share():
    assert usage(quota("a", 4), a=4).shares(Tenant("a")) == (0.0,)


def test_a_tenant_of_weight_zero_that_borrows_comes_last():
    assert usage(quota("a", weight=0.0), a=1).shares(Tenant("a")) == (float("inf"),)


def test_a_cohort_that_is_only_named_is_one_without_limits():
    found = usage(quota("a", 2, cohort="named"), quota("b", cohort="named"), b=3)
    assert [round(share, 3) for share in found.shares(Tenant("b"))] == [0.125, 0.375]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Limit(-1), "must not be negative"),
        (lambda: Quota(Tenant("a"), weight=-1), "weight -1 is neither 0 nor 0.001 to 1000"),
        (lambda: Quota(Tenant("a"), weight=1e308), r"weight 1e\+308 is neither"),
        (lambda: cohort("lab", weight=1e-320), "cohort lab: weight 9.99989e-321 is neither"),
        (lambda: Quota(Tenant("a"), weight=float("nan")), "weight nan is neither"),
        (lambda: cohort(""), "a cohort needs a name"),
        (
            lambda: Quotas((), tuple(cohort(f"c{n}", parent=f"c{n + 1}") for n in range(33))),
            "more than 32 cohorts are above cohort c0",
        ),
        (lambda: Quotas((quota("a"), quota("a"))), "two quotas of namespace a"),
        (lambda: Quotas((), (cohort("a", parent="a"),)), "above itself: a < a"),
        (lambda: Quotas(default=Quota(Tenant(""), limits(1))), "cannot guarantee GPUs"),
        (lambda: Rules(half_life_seconds=-1), "a rule of the queue is negative"),
        (lambda: Rules(half_life_seconds=float("inf")), "the half-life is without end"),
    ],
)
def test_quotas_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(InvalidQuota, match=message):
        wrong()
