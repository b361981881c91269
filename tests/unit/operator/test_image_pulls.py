# SPDX-License-Identifier: Apache-2.0
"""Attempts whose image cannot be pulled: bounded, with pauses in which no GPU is held."""

import datetime as dt

import msgspec
import pytest

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.image_pulls import MAX_ATTEMPTS
from gpupack_operator.decision.model import Plan
from gpupack_operator.decision.reasons import JobReason


@pytest.fixture
def attempt(build):
    """Runs one attempt of a job, with a pod whose container waits so, until it has ended."""

    def run(job, number, at, *, waiting="ImagePullBackOff"):
        """The job afterwards, when the attempt ended, and its last message before that."""
        pod = build.pod(attempt=number, phase="Pending", waiting=waiting, bound=at)
        jobs, message = [build.job(attempt=number)], ""
        while True:
            decision = decide(build.see(job, jobs=jobs, pods=[pod], now=at))
            job = build.after(job, decision)
            if job.status.attempts[-1].finished_at is not None:
                return job, at, message
            message = job.status.message
            at = _second(build, decision.again_at)

    return run


def _second(build, moment):
    return (moment - build.at(0)) // dt.timedelta(seconds=1)


def test_attempts_for_a_missing_image_are_limited_in_number_and_time(build, attempt):
    job, at, held = build.admitted(), 0, []
    for number in range(1, MAX_ATTEMPTS + 1):
        job, ended, message = attempt(job, number, at)
        held.append(ended - at)
        if job.status.phase == "Failed":
            break
        assert f"by attempt {number} of 8 that may wait" in message
        assert job.status.placement == ()
        decision = decide(build.see(job, now=ended))
        at = ended + 600
        planned = Plan(build.placement("a"), seconds=9)
        again = decide(build.see(job, answer=planned, now=at))
        assert again.status.attempt == number + 1, decision
        job = build.after(job, again)
    assert held == [120] + [30] * (MAX_ATTEMPTS - 1)
    assert (job.status.phase, job.status.reason) == ("Failed", JobReason.IMAGE_PULL_FAILED)
    assert "8 attempts in a row could not pull it" in job.status.message


@pytest.mark.parametrize("waiting", ["InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_can_never_be_pulled_fails_the_job_at_once(build, attempt, waiting):
    job, ended, _ = attempt(build.admitted(), 1, 0, waiting=waiting)
    assert (job.status.phase, job.status.reason, ended) == (
        "Failed",
        JobReason.IMAGE_PULL_FAILED,
        0,
    )


def test_a_job_that_ran_before_is_retried_if_a_node_lacks_its_image(build, attempt):
    job = build.admitted()
    ran = msgspec.structs.replace(
        job.status.attempts[0],
        reason="NodeLost",
        outcome="Infrastructure",
        finished_at=build.stamp(0),
    )
    job = msgspec.structs.replace(
        job,
        status=msgspec.structs.replace(
            job.status,
            attempt=2,
            attempts=(ran, msgspec.structs.replace(job.status.attempts[0], number=2)),
        ),
    )
    job, ended, _ = attempt(job, 2, 0, waiting="ErrImageNeverPull")
    assert (job.status.phase, ended) == ("Pending", 120)
