# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_strategies import asks, quotas, submitted, worlds
from queue_world import AT_ONCE, World, limit, quota, with_rules

from gpupack_placement import Gang, Request
from gpupack_queue import (
    NO_PREEMPTION,
    Job,
    JobId,
    PredictedStart,
    Quotas,
    Tenant,
    WaitReason,
    WhatIf,
)
from gpupack_queue.pending.never import NeverAnswers

RETRY = 1.0


def question(world):
    """On a copy, as an onlooker makes it."""
    return WhatIf(world.queue.copy(max_reservations=4), world.cluster.fork(), world.plan, world.now)


def asked(world, name="asked", gpus=1, tenant="", *, workers=1, **kw):
    gang = Gang.of(workers, Request(gpus=gpus))
    job = Job(JobId(name), gang, world.now, Tenant(tenant), number=len(world.jobs), **kw)
    subject = question(world)
    subject.settle()
    return subject.answer(job)


def summary(found):
    """Return the devices and the victims of a predicted start, or why the job waits."""
    if isinstance(found, PredictedStart):
        return [g.uuid for p in found.places for g in p.devices], {v.job for v in found.victims}
    return found.reason, found.position


def became(world, name):
    """Return the same summary for a job that was submitted."""
    reserved = world.queue.state.reserved.get(JobId(name))
    if reserved is not None:
        return [g.uuid for p in reserved.placements for g in p.devices], set(reserved.victims)
    if name in world.running:
        places = [world.running[each] for each in sorted(world.running) if each.startswith(name)]
        return [g.uuid for of in places for p in of for g in p.devices], set()
    wait = world.explain(name)
    return wait.reason, wait.position


def everything(world):
    """All that decisions rest on."""
    state = world.queue.state
    usage = state.quota.usage
    return (
        world.cluster.held(),
        {name: array.tolist() for name, array in arrays(world.cluster).items()},
        [entry.job for entry in state.pending],
        [
            (
                of.searched_at,
                of.request_class.failed_at_release,
                of.request_class.delayed_at_release,
            )
            for of in state.pending.job_classes()
        ],
        list(state.running),
        dict(state.reserved),
        [dict(usage.used_by(each)) for each in usage.tree.all()],
        [(room.job.id, room.start_at, room.placements) for room in state.backfill_reservations],
        state.heads,
    )


def arrays(cluster):
    found = vars(cluster.arrays) if hasattr(cluster.arrays, "__dict__") else {}
    names = found or {name: getattr(cluster.arrays, name) for name in cluster.arrays.__slots__}
    return {name: array for name, array in names.items() if isinstance(array, np.ndarray)}


def test_a_what_if_answers_where_a_job_would_start_and_does_not_start_it():
    world = World(node("n1", 2)).runs("a", "n1/0")
    found = asked(world)
    assert summary(found) == (["n1/1"], set())
    assert world.where == {"a": "n1/0"}
    assert len(world.queue) == 0


def test_a_what_if_names_the_victims_and_does_not_preempt_them():
    world = World(node("n1", 2), quotas=[quota("mine", 2), quota("theirs", 0)])
    world.runs("big", "n1/0 n1/1", "theirs")
    assert summary(asked(world, gpus=2, tenant="mine")) == (["n1/0", "n1/1"], {"big"})
    assert world.where == {"big": "n1/0 n1/1"}
    assert not world.queue.state.reserved


def test_pending_jobs_before_it_go_first():
    """The job would be admitted in the next cycle, which has not run yet."""
    world = World(node("n1", 1), rules=with_rules(preemption=NO_PREEMPTION))
    world.submit("first")
    assert summary(asked(world)) == (WaitReason.DOES_NOT_FIT, 1)
    assert world.where == {}


def test_a_what_if_lists_extra_workers_after_the_others():
    world = World(node("n1", 3))
    assert summary(asked(world, extra_workers=5)) == (["n1/0", "n1/1", "n1/2"], set())


def test_failed_attempts_of_cycles_on_a_copy_are_not_repeated():
    world = World(node("n1", 1), rules=with_rules(preemption=NO_PREEMPTION)).runs("a", "n1/0")
    world.submit("waits")
    subject = question(world)
    world.queue.state.restore(subject.settle())
    (lane,) = world.queue.state.pending.job_classes()
    assert lane.request_class.failed_at_release == world.queue.state.pending.releases
    world.end("a").decide()
    assert world.where == {"waits": "n1/0"}


def test_a_second_question_does_not_compute_never_again(monkeypatch):
    """The queue itself runs no cycles, as in the API server. Running jobs change in between."""
    world = World(node("n1", 2), quotas=[quota("poor", limit(1, borrowing=0))])
    world.submit("typo", 3).submit("much", 2, "poor").runs("a", "n1/0").runs("b", "n1/1")
    world.submit("next")
    computed = []
    real = NeverAnswers._compute
    monkeypatch.setattr(
        NeverAnswers, "_compute", lambda *given: computed.append(given) or real(*given)
    )
    first = question(world)
    world.queue.state.restore(first.settle())
    assert len(computed) == 3
    world.end("a").runs("c", "n1/0")
    assert question(world).settle() is not None
    assert len(computed) == 3
    world.cluster.set_node(node("n2", 3))
    world.queue.record_node_change("n2", world.cluster)
    question(world).settle()
    assert len(computed) == 6


def test_findings_are_not_kept_when_a_cycle_was_due():
    world = World(node("n1", 1))
    world.submit("due")
    assert question(world).settle() is None


@st.composite
def states(draw):
    """Draw a busy and settled world with pending jobs and terminating victims."""
    world, jobs = draw(worlds())
    world.queue.rules = world.queue.state.quota.rules = replace(
        world.queue.rules, preemption=replace(AT_ONCE, retry_seconds=RETRY)
    )
    world.grace = 100.0
    half = len(jobs) // 2
    submitted(world, jobs[:half])
    world.decide(at=10)
    submitted(world, jobs[half:], at=20)
    world.decide(at=20)
    if world.running and draw(st.booleans()):
        world.end(draw(st.sampled_from(sorted(world.running)))).decide()
    for now in range(21, 25):  # victims are sought again after RETRY seconds
        world.decide(at=float(now))
    world.now = 25.0
    return world


@cases
@given(states(), asks)
def test_a_what_if_predicts_what_happens_to_the_job(world, ask):
    predicted = summary(asked(world, **ask))
    world.submit("asked", **ask).decide()
    assert predicted == became(world, "asked")


@cases
@given(states(), asks, quotas())
def test_a_what_if_changes_no_state(world, ask, others):
    before = everything(world)
    asked(world, **ask)
    copy, cluster = world.queue.copy(max_reservations=4), world.cluster.fork()
    copy.configure(Quotas(tuple(others)), cluster, world.now)
    subject = WhatIf(copy, cluster, world.plan, world.now)
    subject.settle(thorough=True)
    subject.answer(Job(JobId("asked"), Gang.of(1, Request(gpus=1)), world.now))
    assert everything(world) == before


@cases
@given(states(), asks, asks)
def test_kept_findings_of_a_what_if_change_no_decision(world, ask, later):
    subject = question(world)
    findings = subject.settle()
    subject.answer(
        Job(JobId("asked"), Gang.of(ask["workers"], Request(gpus=ask["gpus"])), world.now)
    )
    if findings is not None:
        world.queue.state.restore(findings)
    world.now += 1.0
    predicted = summary(asked(world, **later))
    world.submit("asked", **later).decide()
    assert predicted == became(world, "asked")
