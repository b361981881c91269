# SPDX-License-Identifier: Apache-2.0
"""A queue of one's own, given as an object."""

from dataclasses import replace

import pytest
from simulator_builders import ends, job, node, run, starts

from gpupack_queue import Admit, Decisions, Preempt, PreemptionReason, Quotas, Victim
from gpupack_simulator import Cause, InvalidDecision, InvalidParameter, Settings


class Fifo:
    """Strictly in order; keeps what it was shown."""

    def __init__(self):
        self.seen = []

    def __len__(self):
        """None of the engine's business: an empty object is no missing one."""
        return 0

    def decide(self, situation):
        self.seen.append(situation)
        first = next(iter(situation.waiting), None)
        places = first and situation.plan(situation.cluster, first)
        return Decisions((Admit(first.id, places),)) if places else Decisions()


class Answers:
    """What a function of the situation says."""

    def __init__(self, decide):
        self.decide = decide


def admit(situation, name, *, times=1):
    (asked,) = [one for one in situation.waiting if one.id == name]
    return Admit(name, situation.plan(situation.cluster, asked) * times)


def preempt(preemptor, *victims):
    return Preempt(preemptor, tuple(Victim(v, PreemptionReason.PRIORITY, 0.0) for v in victims), ())


SOME = [job("a", 3, lasts=4), job("b", 2, at=1, lasts=3), job("c", 1, at=1, lasts=2)]


def test_a_custom_queue_decides_as_core_does_with_the_same_rules():
    ours, core = run([node("n")], SOME, queue=Fifo()), run([node("n")], SOME, discipline="fifo")
    assert starts(ours) == starts(core) == {"a": 0, "b": 4, "c": 4}


def test_a_custom_queue_sees_pending_and_running_jobs():
    queue = Fifo()
    run([node("n")], SOME, queue=queue)
    last = next(seen for seen in queue.seen if seen.now == 1)
    assert [one.id for one in last.waiting] == ["b", "c"]
    assert [(one.job.id, one.latest_end, sum(one.charge.values())) for one in last.running] == [
        ("a", 4, 3000)
    ]


def one_for_another(situation):
    """The new job gets the node; the running job is preempted for it."""
    names = {one.id for one in situation.waiting}
    if "new" in names and situation.running and not situation.stopping:
        return Decisions(preemptions=(preempt("new", situation.running[0].job.id),))
    first = "new" if "new" in names else next(iter(names), None)
    fits = first and not situation.running
    return Decisions((admit(situation, first),)) if fits else Decisions()


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_a_custom_queue_may_preempt_jobs_which_are_then_pending_again(grace):
    jobs = [job("old", 4, lasts=50), job("new", 4, at=10, lasts=20)]
    course = run([node("n")], jobs, queue=Answers(one_for_another), grace=grace)
    assert starts(course) == {"new": 10 + grace, "old": 30 + grace}
    (loss,) = course.losses
    assert (loss.job, loss.cause, loss.time) == ("old", Cause.PREEMPTED, 10 + grace)


def test_a_custom_queue_is_called_again_at_the_time_that_it_names():
    def later(situation):
        if situation.now < 7:
            return Decisions(due_at=7.0)
        return Decisions((admit(situation, "a"),)) if situation.waiting else Decisions()

    assert starts(run([node("n")], [job("a", lasts=1)], queue=Answers(later))) == {"a": 7}


def twice(situation):
    """Preempts the running job and admits it again at once, without end."""
    if situation.running:
        return Decisions(preemptions=(preempt("b", "a"),))
    return Decisions((admit(situation, "a"),))


def replaced(situation, name, *, devices, of_node=None, **of_each):
    """As it would be, but for what is named of the place or of each of these devices."""
    right = admit(situation, name)
    (place,) = right.placements
    grants = tuple(replace(grant, **of_each) for grant in place.devices[devices])
    cpu = place.cpu if of_node is None else of_node
    return replace(right, placements=(replace(place, devices=grants, cpu=cpu),))


MISTAKES = {
    "job x is admitted, but does not wait": lambda s: Decisions((Admit("x", ()),)),
    "job a has 1 workers and is admitted to 0 places": lambda s: Decisions((Admit("a", ()),)),
    "job a has 1 workers and is admitted to 2 places": lambda s: Decisions(
        (admit(s, "a", times=2),)
    ),
    "job a requests 3 GPUs and is given 1 device on n": lambda s: Decisions(
        (replaced(s, "a", devices=slice(1)),)
    ),
    "job a is given 500 milli-GPU of .*; plan": lambda s: Decisions(
        (replaced(s, "a", devices=slice(None), milli=500),)
    ),
    "job a is given 0 MiB of .*; plan": lambda s: Decisions(
        (replaced(s, "a", devices=slice(None), memory=0),)
    ),
    "job a is given 7 mCPU and 0 MiB of memory on n; it requests 0 and 0": lambda s: Decisions(
        (replaced(s, "a", devices=slice(None), of_node=7),)
    ),
    "decide answered None; give a Decisions": lambda s: None,
    "job b is admitted where it cannot run": lambda s: Decisions((admit(s, "a"), admit(s, "b"))),
    "others are stopped for x, which does not wait": lambda s: Decisions(
        preemptions=(preempt("x", "a"),)
    ),
    "job a is to preempt, but no victim is named; admit it": lambda s: Decisions(
        preemptions=(preempt("a"),)
    ),
    "job a is to be stopped, but does not run": lambda s: Decisions(
        preemptions=(preempt("b", "a"),)
    ),
    "job a is stopped twice at one instant": twice,
    "at 0 nothing is decided, and it is to be asked again at 0": lambda s: Decisions(due_at=0.0),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_decision_that_cannot_be_carried_out_is_an_error_that_says_why(mistake):
    jobs = [job("a", 3, lasts=4), job("b", 3, lasts=4)]
    with pytest.raises(InvalidDecision, match=mistake):
        run([node("n")], jobs, queue=Answers(MISTAKES[mistake]))


def test_a_custom_queue_cannot_preempt_a_job_that_is_not_preemptible():
    firm = replace(job("old", 4, lasts=50), preemptible=False)
    with pytest.raises(InvalidDecision, match="job old is to be stopped, but is not preemptible"):
        run([node("n")], [firm, job("new", 4, at=10)], queue=Answers(one_for_another))


def test_a_victim_is_not_preempted_again():
    def again(situation):
        if situation.now == 11 or (situation.now == 10 and not situation.stopping):
            return Decisions(preemptions=(preempt("new", "old"),))
        return Decisions() if situation.running else Decisions((admit(situation, "old"),))

    jobs = [job("old", 4, lasts=50), job("new", 4, at=10), job("other", 4, at=11)]
    with pytest.raises(InvalidDecision, match="is being stopped already"):
        run([node("n")], jobs, queue=Answers(again), grace=5)


def test_quotas_are_its_own_business():
    with pytest.raises(InvalidParameter, match="keeps quotas itself"):
        Settings(queue=Fifo(), quotas=Quotas())


def test_a_custom_queue_never_gets_jobs_that_do_not_fit_the_empty_cluster():
    course = run([node("n")], [job("huge", 5)], queue=Fifo())
    assert ends(course) == {"huge": "dropped"}
