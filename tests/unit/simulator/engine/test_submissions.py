# SPDX-License-Identifier: Apache-2.0
"""Jobs that are submitted and cancelled while a run goes on."""

from math import inf

import pytest
from simulator_builders import ends, job, node, starts

from gpupack_queue import Limit, Quota, Quotas
from gpupack_simulator import End, InvalidJob, Settings, Simulator


def simulator(*jobs, **settings):
    return Simulator([node("n")], jobs, "first-fit", Settings(**settings))


def test_a_job_submitted_in_between_runs_as_if_it_had_been_known():
    known = simulator(job("a", 3, lasts=4), job("b", 2, at=2, lasts=3)).run()
    submitted = simulator(job("a", 3, lasts=4))
    submitted.advance(1)
    submitted.submit(job("b", 2, at=2, lasts=3))
    assert starts(submitted.run()) == starts(known) == {"a": 0, "b": 4}


def test_a_job_submitted_now_arrives_now_even_after_the_end():
    course = simulator(job("a", lasts=4))
    course.run()
    assert course.over
    course.submit(job("b", at=course.now, lasts=2))
    assert not course.over
    assert starts(course.run()) == {"a": 0, "b": 4}


@pytest.mark.parametrize(
    ("at", "message"), [(1, "arrives at 1, which is over: it is 2"), (3, "two")]
)
def test_a_job_of_the_past_or_of_a_name_that_there_is_is_refused(at, message):
    course = simulator(job("a", lasts=4))
    course.advance(2)
    with pytest.raises(InvalidJob, match=message):
        course.submit(job("a", at=at))


def test_the_next_one_starts_when_a_job_that_runs_is_cancelled():
    course = simulator(job("a", 4), job("b", 4, at=1, lasts=2))
    course.advance(5)
    course.cancel("a")
    done = course.run()
    assert starts(done) == {"a": 0, "b": 5}
    assert ends(done) == {"a": "cancelled", "b": "succeeded"}
    assert (done.jobs[0].ended, done.losses) == (5, ())


def test_a_job_that_is_cancelled_while_pending_delays_no_other_job():
    course = simulator(job("a", 3, lasts=9), job("b", 4, at=1, lasts=2), job("c", 1, at=2, lasts=2))
    course.advance(3)
    course.cancel("b")
    done = course.run()
    assert starts(done) == {"a": 0, "b": None, "c": 3}
    assert (done.jobs[1].end, done.jobs[1].wait) == (End.CANCELLED, 2)


def test_a_job_that_has_not_arrived_never_does_and_its_name_can_be_given_again():
    course = simulator(job("a", lasts=1), job("b", at=5, lasts=1))
    course.cancel("b")
    course.submit(job("b", at=8, lasts=2))
    done = course.run()
    assert starts(done) == {"a": 0, "b": 8}
    assert done.jobs[1].job.duration == 2


def test_a_finished_job_cannot_be_cancelled():
    course = simulator(job("a", lasts=1), job("b", lasts=9))
    course.advance(3)
    course.cancel("a")
    assert ends(course.run()) == {"a": "succeeded", "b": "succeeded"}


def test_an_unknown_job_cannot_be_cancelled():
    with pytest.raises(InvalidJob, match="there is no job x to be cancelled"):
        simulator(job("a")).cancel("x")


def test_the_reservation_of_a_cancelled_preemptor_is_free_for_any_job():
    quotas = Quotas((Quota("owner", {"": Limit(4000)}),))
    guest, mine = job("guest", 4, lasts=1000), job("mine", 4, at=100, lasts=10)
    object.__setattr__(guest, "tenant", "guest")
    object.__setattr__(mine, "tenant", "owner")
    course = simulator(guest, mine, discipline="fair-share", quotas=quotas, grace=30)
    course.advance(110)
    course.cancel("mine")
    done = course.run()
    assert (done.jobs[0].preemptions, starts(done)["guest"], done.ended) == (1, 130, 1130)
    assert done.jobs[1].started is None


def test_cancelling_at_any_time_leaves_no_gpu_behind():
    for when in range(12):
        course = simulator(*(job(f"j{n}", 1 + n % 4, at=n, lasts=3) for n in range(8)))
        course.advance(when)
        for number in range(8):
            course.cancel(f"j{number}")
        done = course.run(inf)
        assert course.cluster.held() == {}
        assert not any(record.end in {End.RUNNING, End.WAITING} for record in done.jobs)
