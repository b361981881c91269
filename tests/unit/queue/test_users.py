# SPDX-License-Identifier: Apache-2.0
"""Turns of the users of one tenant: the smaller usage first, then age."""

from dataclasses import replace

import pytest
from placement_builders import node
from queue_world import PATIENT, World, quota

from gpupack_queue import Quotas, User
from gpupack_queue.quotas.user_shares import MAX_USERS
from gpupack_queue.rules import NO_PREEMPTION

RULES = replace(PATIENT, preemption=NO_PREEMPTION)


def turns(tenant="lab", gpus=None, **more):
    """A quota whose users take turns."""
    return replace(quota(tenant, gpus, **more), by_user=True)


def world(*quotas, gpus=4, rules=RULES):
    return World(node("n1", gpus=gpus), quotas=quotas or (turns(),), rules=rules)


def order(found):
    return [str(job) for job in found.queue.ordered_ids()]


def submits(found, user, *names, tenant="lab", **kw):
    for name in names:
        found.submit(name, tenant=tenant, user=User(user), **kw)


def test_the_user_who_uses_less_goes_first_and_then_age_decides():
    found = world().runs("r", "n1/0 n1/1", "lab", user=User("ann"))
    submits(found, "ann", "a1", "a2")
    submits(found, "bob", "b1", "b2")
    assert order(found) == ["b1", "b2", "a1", "a2"]


def test_by_default_age_alone_decides():
    found = world(quota("lab")).runs("r", "n1/0", "lab", user=User("ann"))
    submits(found, "ann", "a1")
    submits(found, "bob", "b1")
    assert order(found) == ["a1", "b1"]


def test_priority_comes_before_the_user():
    found = world().runs("r", "n1/0", "lab", user=User("ann"))
    submits(found, "bob", "b1")
    submits(found, "ann", "a1", priority=1)
    assert order(found) == ["a1", "b1"]


def test_each_admission_counts_at_once_so_users_take_turns():
    found = world(gpus=4)
    submits(found, "ann", "a1", "a2", "a3", "a4")
    submits(found, "bob", "b1", "b2")
    found.decide()
    assert set(found.running) == {"a1", "b1", "a2", "b2"}


def test_users_of_one_tenant_change_nothing_between_tenants_of_different_shares():
    found = world(turns(), turns("other")).runs("r", "n1/0", "lab", user=User("ann"))
    submits(found, "bob", "b1")
    submits(found, "cat", "c1", tenant="other")
    assert order(found) == ["c1", "b1"]


def test_jobs_without_a_known_user_share_a_turn():
    found = world().runs("r", "n1/0", "lab")
    submits(found, "", "x1")
    submits(found, "ann", "a1")
    assert order(found) == ["a1", "x1"]


def test_the_number_of_users_is_bounded_and_further_ones_share_a_turn():
    found = world(gpus=2 * MAX_USERS)
    for number in range(MAX_USERS + 5):
        submits(found, f"u{number}", f"j{number}")
    users = found.queue.state.pending.users("lab")
    assert len(users) == MAX_USERS + 1
    assert len(found.queue.state.pending.job_classes()) == MAX_USERS + 1
    found.decide()
    used = found.queue.state.running.usage_by_user("lab")
    assert len(used) == MAX_USERS + 1
    assert used[User("")] == {"": 5000}


def test_the_position_and_the_jobs_before_follow_the_users():
    found = world().runs("r", "n1/0 n1/1 n1/2 n1/3", "lab", user=User("ann"))
    submits(found, "ann", "a1")
    submits(found, "bob", "b1")
    assert [str(job.id) for job in found.queue.jobs_before("a1")] == ["b1"]
    first, second = (found.explain(name) for name in ("b1", "a1"))
    assert (first.position, second.position) == (1, 2)
    assert (first.passed_by_user, second.passed_by_user) == (False, True)
    assert "their users use fewer GPUs of the namespace (jobOrder)" in second.message
    assert "jobOrder" not in first.message


def test_a_changed_quota_lets_users_take_turns_from_then_on():
    found = world(quota("lab")).runs("r", "n1/0", "lab", user=User("ann"))
    submits(found, "ann", "a1")
    submits(found, "bob", "b1")
    for by_user, expected in ((True, ["b1", "a1"]), (False, ["a1", "b1"])):
        changed = replace(quota("lab"), by_user=by_user)
        found.queue.configure(Quotas((changed,)), found.cluster, found.now)
        assert order(found) == expected


@pytest.mark.parametrize(("half_life", "expected"), [(0.0, ["a1", "b1"]), (100.0, ["b1", "a1"])])
def test_with_a_half_life_past_usage_counts_as_between_tenants(half_life, expected):
    found = world(rules=replace(RULES, half_life_seconds=half_life))
    found.runs("r", "n1/0", "lab", user=User("ann"))
    found.now = 50.0
    found.queue.end("r", found.cluster, found.now)
    submits(found, "ann", "a1")
    submits(found, "bob", "b1")
    assert order(found) == expected


def test_a_job_that_others_pass_starts_when_their_users_use_as_much():
    """Bob submits again and again; ann's job waits for no more than his usage."""
    found = world(gpus=2).runs("r", "n1/0", "lab", user=User("ann"))
    submits(found, "ann", "a1")
    submits(found, "bob", "b1", "b2", "b3")
    found.decide()
    assert "b1" in found.running
    submits(found, "bob", "b4")
    assert order(found)[0] == "a1"
