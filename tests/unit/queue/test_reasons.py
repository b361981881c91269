# SPDX-License-Identifier: Apache-2.0
"""Every text that a waiting job can have, in one table."""

import pytest
from placement_builders import node
from queue_world import AT_ONCE, World, cohort, limit, quota, window, with_rules

from gpupack_placement import Request
from gpupack_queue import NO_PREEMPTION, OrderPolicy, WaitReason


def full_node():
    world = World(
        node("n1", 4), rules=with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=0)
    )
    return world.runs("old", "n1/0 n1/1 n1/2", "a", duration=300.0)


def lacks_gpus():
    return full_node().submit("job", 2, "a").decide()


def lacks_gpus_for_a_gang():
    return full_node().submit("job", 1, "a", workers=2).decide()


def lacks_gpus_and_others_wait_too():
    world = full_node().submit("first", 2, "a")
    return world.submit("job", 2, "a").decide(at=30)


def lacks_gpus_and_its_start_is_foreseen():
    world = full_node().submit("job", 2, "a")
    return world.submit("late", 1, "a").decide(at=100)


def would_take_room_that_is_kept():
    world = full_node().submit("first", 4, "a").decide()
    return world.submit("job", 1, "a", duration=500.0).decide(at=100)


def would_take_room_that_is_kept_for_another_tenant():
    world = full_node().submit("first", 4, "b").decide()
    return world.submit("job", 1, "a", duration=500.0).decide(at=100)


def waits_for_victims():
    world = World(node("n1", 2), quotas=[quota("owner", 2)], grace=60)
    world.runs("x", "n1/0", "guest").runs("y", "n1/1", "guest")
    return world.submit("job", 2, "owner").decide(at=10).decide(at=42)


def waits_for_one_victim():
    world = World(node("n1", 1), quotas=[quota("owner", 1)], grace=60)
    world.runs("x", "n1/0", "guest")
    return world.submit("job", 1, "owner").decide(at=10).decide(at=12)


def may_borrow_no_more():
    world = World(node("n1", 8), quotas=[quota("team", H100=limit(2, borrowing=1))])
    world.runs("old", "n1/0 n1/1", "team")
    return world.submit("job", 2, "team").decide()


def cohort_may_borrow_no_more():
    world = World(
        node("n1", 8),
        cohorts=[cohort("lab", H100=limit(2, borrowing=0))],
        quotas=[quota("team", cohort="lab")],
    )
    world.runs("old", "n1/0", "team")
    return world.submit("job", 2, "team").decide()


def others_keep_theirs():
    world = World(node("n1", 4), quotas=[quota("owner", H100=limit(3, lending=1))])
    world.runs("old", "n1/0", "guest")
    return world.submit("job", 2, "guest").decide()


def stands_behind_another():
    world = World(
        node("n1", 4), rules=with_rules(order=OrderPolicy.STRICT, preemption=NO_PREEMPTION)
    )
    world.runs("old", "n1/0", "a").submit("first", 4, "a")
    return world.submit("job", 1, "a").decide()


def stands_behind_another_in_its_cohort():
    world = World(
        node("n1", 4),
        cohorts=[cohort("lab", order=OrderPolicy.STRICT)],
        quotas=[quota("a", cohort="lab"), quota("b", cohort="lab")],
        rules=with_rules(preemption=NO_PREEMPTION, by_share=False),
    )
    world.runs("old", "n1/0", "a").submit("first", 4, "a")
    return world.submit("job", 1, "b").decide()


def lacks_gpus_of_a_window():
    world = World(node("n1", 4), quotas=[quota("lab", 4)])
    world.reserve(window("lab/day", 1, 0, 300, units=4))
    return world.submit("job", 1, "lab").decide()


def would_delay_a_window_of_another_tenant():
    world = World(node("n1", 4), quotas=[quota("lab", 4)])
    world.reserve(window("lab/day", 1, 300, 600, units=4))
    return world.submit("job", 1, "team", preemptible=False).decide()


def came_just_now():
    world = World(node("n1", 4)).decide()
    return world.submit("job", 1, "a")


def is_cpu_only():
    world = World(node("n1", 1, cpu=1000), rules=with_rules(preemption=AT_ONCE))
    return world.submit("job", request=Request(gpus=0, cpu=2000)).decide()


AT_300 = "it starts at 1970-01-01T00:05:00Z at the latest"
EXPECTED_AT_300 = "it is expected to start at 1970-01-01T00:05:00Z at the latest"
ENDLESS = "no start time is known: 1 job or pod without a deadline holds what it needs"
AFTER_ENDLESS = "no start time is known: jobs that start before it have no deadline"

TEXTS = [
    (
        lacks_gpus,
        WaitReason.DOES_NOT_FIT,
        (
            "does not fit: 0 of 1 node fits: 1 node: fewer than 2 free GPUs (most free on one "
            f"node: 1); 1 node would fit with 1 GPU less; {AT_300}"
        ),
    ),
    (
        lacks_gpus_for_a_gang,
        WaitReason.DOES_NOT_FIT,
        (
            "does not fit: gang of 2 workers × 1 GPU: 1 of 2 workers fit now; 1 GPU is missing (1 "  # noqa: RUF001
            "free GPU in 1 node, 2 requested); 1 of 1 node has room for a worker; "
            f"{AT_300}"
        ),
    ),
    (
        lacks_gpus_and_others_wait_too,
        WaitReason.DOES_NOT_FIT,
        (
            "does not fit: 0 of 1 node fits: 1 node: fewer than 2 free GPUs (most free on one "
            f"node: 1); 1 node would fit with 1 GPU less; {EXPECTED_AT_300}"
        ),
    ),
    (
        lacks_gpus_and_its_start_is_foreseen,
        WaitReason.DOES_NOT_FIT,
        (
            "does not fit: 0 of 1 node fits: 1 node: fewer than 2 free GPUs (most free on one "
            f"node: 0); {AT_300}"
        ),
    ),
    (
        would_take_room_that_is_kept,
        WaitReason.RESERVED,
        (
            "blocked by the reservation of first, which has waited for 100 s; a job that ends "
            "within 3 min by its deadline can be backfilled; "
            f"{AFTER_ENDLESS}"
        ),
    ),
    (
        would_take_room_that_is_kept_for_another_tenant,
        WaitReason.RESERVED,
        (
            "blocked by the reservation of a job of another namespace, which has waited for 100 s; "
            "a job that ends within 3 min by its deadline can be backfilled; "
            f"{AFTER_ENDLESS}"
        ),
    ),
    (
        lacks_gpus_of_a_window,
        WaitReason.RESERVED_FOR_WINDOW,
        (
            "GPUs are reserved for time-window reservation day until 1970-01-01T00:05:00Z; "
            f"{EXPECTED_AT_300}"
        ),
    ),
    (
        would_delay_a_window_of_another_tenant,
        WaitReason.RESERVED_FOR_WINDOW,
        (
            "GPUs are reserved for a time-window reservation of another namespace from "
            "1970-01-01T00:05:00Z; a job that is preemptible, or ends before by its deadline, can "
            "use them until then"
        ),
    ),
    (
        waits_for_victims,
        WaitReason.PREEMPTION_PENDING,
        "preempting 2 jobs (30 s so far); starts when they have terminated",
    ),
    (
        waits_for_one_victim,
        WaitReason.PREEMPTION_PENDING,
        "preempting 1 job (2 s so far); starts when it has terminated",
    ),
    (
        may_borrow_no_more,
        WaitReason.BORROWING_LIMIT_EXCEEDED,
        (
            "borrowing limit of namespace team reached: 2 GPUs requested, 1 H100 GPU left (2 GPUs "
            "in use, quota 2 GPUs, borrowing limit 1 GPU); starts when jobs of namespace team end, "
            "or with a higher limit; "
            f"{ENDLESS}"
        ),
    ),
    (
        cohort_may_borrow_no_more,
        WaitReason.BORROWING_LIMIT_EXCEEDED,
        (
            "borrowing limit of cohort lab reached: 2 GPUs requested, 1 H100 GPU left (1 GPU in "
            "use, quota 2 GPUs, borrowing limit 0 GPUs); starts when jobs of cohort lab end, or "
            "with a higher limit; "
            f"{ENDLESS}"
        ),
    ),
    (
        others_keep_theirs,
        WaitReason.QUOTA_EXCEEDED,
        (
            "insufficient quota: 2 GPUs requested, 1 H100 GPU left to borrow from the cluster (1 "
            "GPU in use, the rest not lendable); starts when jobs that borrow end, or with a "
            "larger nominal quota; "
            f"{ENDLESS}"
        ),
    ),
    (
        stands_behind_another,
        WaitReason.BLOCKED_BY_QUEUE_HEAD,
        f"blocked by first, the queue head of the cluster (strict order); {AFTER_ENDLESS}",
    ),
    (
        stands_behind_another_in_its_cohort,
        WaitReason.BLOCKED_BY_QUEUE_HEAD,
        (
            "blocked by a job of another namespace, the queue head of cohort lab (strict order); "
            f"{AFTER_ENDLESS}"
        ),
    ),
    (
        came_just_now,
        WaitReason.ADMISSION_PENDING,
        "will be admitted in the next scheduling cycle",
    ),
    (
        is_cpu_only,
        WaitReason.UNSATISFIABLE,
        (
            "can never start on these nodes: 0 of 1 node fits: 1 node: fewer than 2000 milli-CPU "
            "(most on one node: 1000); 1 node would fit with 1 core less; needs other nodes or "
            "another request"
        ),
    ),
]


@pytest.mark.parametrize(("world", "reason", "text"), TEXTS, ids=[w.__name__ for w, _, _ in TEXTS])
def test_a_pending_job_shows_the_reason(world, reason, text):
    wait = world().explain("job")
    assert (wait.reason, wait.message) == (reason, text)


@pytest.mark.parametrize(
    ("world", "later"),
    [
        (would_take_room_that_is_kept, 230),
        (waits_for_victims, 60),
    ],
)
def test_a_message_without_its_times_is_stable_over_time(world, later):
    built = world()
    before, after = built.explain("job"), built.decide(at=later).explain("job")
    assert before.message != after.message
    assert (before.reason, before.message_without_times) == (
        after.reason,
        after.message_without_times,
    )


def test_the_table_has_every_reason():
    assert {reason for _, reason, _ in TEXTS} == set(WaitReason)
