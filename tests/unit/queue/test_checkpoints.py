# SPDX-License-Identifier: Apache-2.0
"""Victims are chosen by the work that is lost: the time since the last checkpoint, or the start."""

import pytest
from placement_builders import node
from queue_world import World, quota, with_rules

from gpupack_placement import NotHeld
from gpupack_queue import ConsolidationRules, JobId


def two_borrowers():
    """`old` has run for 1,000 s and `young` for 100 s when `mine` is submitted."""
    world = World(node("n1", 2), quotas=[quota("owner", 2), quota("guest", 0)])
    world.runs("old", "n1/0", "guest")
    world.now = 900.0
    world.runs("young", "n1/1", "guest")
    world.now = 1000.0
    return world


def test_without_checkpoints_the_job_that_ran_for_less_time_is_the_victim():
    world = two_borrowers().submit("mine", 1, "owner").decide()
    assert world.log == ["mine stops young", "mine starts"]


def test_the_job_with_the_newest_checkpoint_is_the_victim():
    world = two_borrowers()
    world.queue.record_checkpoint(JobId("old"), 990.0)
    world.submit("mine", 1, "owner")
    (preempt,) = world.queue.cycle(world.cluster, world.now, world.plan).preemptions
    assert [(one.job, one.lost_gpu_seconds) for one in preempt.victims] == [("old", 10.0)]


def test_a_checkpoint_of_an_earlier_attempt_does_not_count():
    world = two_borrowers()
    world.queue.record_checkpoint(JobId("young"), 100.0)
    world.submit("mine", 1, "owner")
    (preempt,) = world.queue.cycle(world.cluster, world.now, world.plan).preemptions
    assert [(one.job, one.lost_gpu_seconds) for one in preempt.victims] == [("young", 100.0)]


def test_a_withdrawn_checkpoint_does_not_count():
    world = two_borrowers()
    world.queue.record_checkpoint(JobId("old"), 990.0)
    world.queue.record_checkpoint(JobId("old"), None)
    assert world.submit("mine", 1, "owner").decide().log == ["mine stops young", "mine starts"]


def test_a_checkpoint_remains_when_other_properties_of_the_job_change():
    world = two_borrowers()
    world.queue.record_checkpoint(JobId("old"), 990.0)
    places, job = world.running["old"], world.jobs["old"]
    world.queue.update_running(job, places, world.cluster, world.now)
    assert world.submit("mine", 1, "owner").decide().log == ["mine stops old", "mine starts"]


def test_a_checkpoint_of_a_job_that_does_not_run_is_refused():
    with pytest.raises(NotHeld, match="job other does not run"):
        two_borrowers().queue.record_checkpoint(JobId("other"), 1.0)


def test_a_move_loses_the_work_since_the_last_checkpoint():
    rules = ConsolidationRules(
        ratio=10.0,
        min_wait_seconds=0.0,
        cooldown_seconds=0.0,
        restart_seconds=2.0,
        checkpoint_seconds=500.0,
    )
    world = World(
        node("n1", 2),
        node("n2", 2),
        rules=with_rules(consolidation=rules, reserve_after_seconds=0.0),
    )
    world.runs("left", "n1/0", movable=True).runs("right", "n2/0", movable=True)
    world.now = 1000.0
    world.queue.record_checkpoint(JobId("right"), 970.0)
    world.submit("large", 2)
    world.decide()
    (made,) = world.consolidations
    assert ([move.job for move in made.moves], made.lost_gpu_seconds) == (["right"], 32.0)
