# SPDX-License-Identifier: Apache-2.0
"""Jobs that are moved go on elsewhere from what they saved; what that cost is in the record."""

from dataclasses import replace
from math import inf

import pytest
from simulator_builders import node

from gpupack_placement import NodeName, Request
from gpupack_queue import ConsolidationRules
from gpupack_simulator import Job, JobId, Settings, Simulator
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations
from gpupack_simulator.engine.maintenance import Drain, Maintenance, Presence
from gpupack_simulator.errors import InvalidJob, InvalidParameter
from gpupack_simulator.record import Cause


def queue(**kw):
    fair = DISCIPLINES["fair-share"]
    moves = ConsolidationRules(
        ratio=1.0,
        min_wait_seconds=0.0,
        cooldown_seconds=0.0,
        restart_seconds=2.0,
        checkpoint_seconds=5.0,
    )
    rules = replace(fair.rules, reserve_after_seconds=0.0, consolidation=moves)
    return replace(fair, rules=rules, durations=KnownDurations.NONE, **kw)


def job(name, gpus, arrival=0.0, **kw):
    return Job(JobId(name), arrival, Request(gpus=gpus), **{"duration": 100.0} | kw)


def two_half_full_nodes(**kw):
    """A filler of 1 GPU makes the second movable job go to the other node, and is gone at 1."""
    saves = {"movable": True, "checkpoint": 5.0, "restart": 2.0}
    jobs = [
        job("one", 1, **saves),
        job("filler", 1, duration=1.0),
        job("two", 1, **saves),
        job("large", 2, 12.0),
    ]
    settings = Settings(queue=queue(), discipline="fair-share", **kw)
    return Simulator([node("a", 2), node("b", 2)], jobs, "first-fit", settings).run()


def by_name(run):
    return {str(record.job.id): record for record in run.jobs}


def test_a_job_that_is_moved_goes_on_from_its_last_checkpoint():
    run = two_half_full_nodes()
    records = by_name(run)
    [made] = run.consolidations
    assert (made.time, made.job, made.moved) == (12.0, "large", 1)
    [moved] = [record for record in run.jobs if record.moves]
    assert moved.preemptions == 0
    assert moved.ended == 12.0 + (100.0 - 10.0) + 2.0
    assert records["large"].started == 12.0
    [loss] = run.losses
    assert loss.cause is Cause.MOVED
    assert loss.milli_time == 1000 * (2.0 + 2.0)


def test_with_a_grace_period_the_other_starts_when_it_is_over():
    run = two_half_full_nodes(grace=3.0)
    assert by_name(run)["large"].started == 15.0
    assert sum(record.moves for record in run.jobs) == 1


def test_without_a_checkpoint_a_moved_job_starts_over():
    entry = job("a", 1)
    assert entry.checkpoint == inf
    with pytest.raises(InvalidJob, match="checkpoint"):
        job("a", 1, checkpoint=0.0)
    with pytest.raises(InvalidJob, match="elastic"):
        job("a", 1, workers=2, min_workers=1, checkpoint=1.0)


def drained(*, drain="All", stop_at=None, until=500.0, movable=True):
    saves = {"movable": movable, "checkpoint": 5.0, "restart": 2.0}
    entry = Maintenance(NodeName("b"), None, 20.0, until, Drain(drain), stop_at)
    settings = Settings(queue=queue(), discipline="fair-share", maintenance=(entry,))
    jobs = [job("one", 2, **saves)]
    return Simulator([node("a", 2), node("b", 2)], jobs, "first-fit", settings).run()


def test_a_movable_job_leaves_a_node_in_maintenance_at_once():
    [record] = drained(stop_at=60.0).jobs
    assert (record.moves, record.placements[0].node) == (1, "a")
    assert record.ended == 20.0 + 80.0 + 2.0


def test_a_job_that_is_not_movable_runs_until_it_is_drained():
    run = drained(stop_at=62.0, movable=False)
    [record] = run.jobs
    assert (record.moves, record.placements[0].node) == (0, "a")
    assert record.ended == 62.0 + 40.0 + 2.0
    [loss] = run.losses
    assert (loss.cause, loss.milli_time) == (Cause.DRAINED, 2000 * (2.0 + 2.0))


@pytest.mark.parametrize("drain", ["Never", "Movable"])
def test_a_job_that_is_not_drained_stays(drain):
    [record] = drained(drain=drain, movable=False).jobs
    assert (record.attempts, record.ended) == (1, 100.0)


def test_a_node_that_comes_later_is_waited_for_and_counts_from_then_on():
    there = Presence(NodeName("b"), joins=30.0)
    settings = Settings(queue=queue(), discipline="fair-share", presence=(there,))
    run = Simulator([node("a", 2), node("b", 4)], [job("large", 4)], "best-fit", settings).run()
    assert run.jobs[0].started == 30.0
    assert [sample.capacity_milli for sample in run.samples][0::2] == [2000, 6000]


def test_a_job_on_a_removed_node_is_pending_again():
    gone = Presence(NodeName("b"), leaves=50.0)
    settings = Settings(queue=queue(), discipline="fair-share", presence=(gone,))
    run = Simulator([node("a", 2), node("b", 2)], [job("one", 2)], "first-fit", settings).run()
    [record] = run.jobs
    assert (record.attempts, record.placements[0].node) == (2, "a")
    assert record.ended == 50.0 + 100.0


def test_invalid_maintenance_and_presence_are_refused():
    with pytest.raises(InvalidParameter, match="later"):
        Maintenance(NodeName("a"), None, 5.0, 5.0)
    with pytest.raises(InvalidParameter, match="stopAt"):
        Maintenance(NodeName("a"), None, 5.0, drain=Drain.MOVABLE, stop_at=6.0)
    with pytest.raises(InvalidParameter, match="leaves"):
        Presence(NodeName("a"), joins=5.0, leaves=5.0)
