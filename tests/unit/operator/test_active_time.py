# SPDX-License-Identifier: Apache-2.0
"""Active time that counts against a deadline, and the start of waiting."""

import dataclasses

import pytest
from msgspec import structs

from gpupack_operator.decision import times
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import AttemptPreemption, CreateChildren, Plan, RequestPlan
from gpupack_operator.decision.reasons import JobReason

DAYS_LATER = 864_000


def suspended(job, *, suspend=True):
    return structs.replace(job, spec=structs.replace(job.spec, suspend=suspend))


def preempted(build, job, *, at):
    """Preempt the first attempt at that second; its pod is gone."""
    seen = build.see(job, jobs=[build.job()], pods=[build.pod()], now=at)
    by = AttemptPreemption("Priority", ("other", "urgent"))
    return build.after(job, decide(dataclasses.replace(seen, preemption=by)))


def admitted_again(build, job, *, at):
    found = decide(build.see(job, answer=Plan(build.placement("a"), 9), now=at))
    return build.after(job, found), found


def test_time_between_attempts_does_not_count_against_the_deadline(build):
    job = preempted(build, build.admitted(activeDeadlineSeconds=600), at=100)
    assert job.status.active_seconds == 100
    assert decide(build.see(job, now=DAYS_LATER)).actions == (RequestPlan(attempt=2),)
    again, found = admitted_again(build, job, at=DAYS_LATER)
    assert found.actions == (CreateChildren(attempt=2, deadline_seconds=501),)
    assert times.deadline(again.spec, again.status) == build.at(DAYS_LATER + 500)


def test_the_deadline_limits_the_active_time_of_all_attempts_together(build):
    job = preempted(build, build.admitted(activeDeadlineSeconds=600), at=100)
    job, _ = admitted_again(build, job, at=1000)
    running = {"jobs": [build.job(attempt=2)], "pods": [build.pod(attempt=2)]}
    assert decide(build.see(job, now=1499, **running)).status.phase != "Failed"
    status = decide(build.see(job, now=1500, **running)).status
    assert (status.phase, status.reason) == ("Failed", JobReason.DEADLINE_EXCEEDED)
    assert (status.active_seconds, status.message) == (
        600,
        "the job was active for 600 s (activeDeadlineSeconds) and had not ended",
    )


@pytest.mark.parametrize("limit", [100, 60])
def test_a_job_that_has_used_its_active_time_does_not_start_again(build, limit):
    """The deadline was made shorter, or the job was preempted in its last second."""
    job = preempted(build, build.admitted(activeDeadlineSeconds=600), at=100)
    job = structs.replace(job, spec=structs.replace(job.spec, active_deadline_seconds=limit))
    status = decide(build.see(job, now=110)).status
    assert (status.phase, status.reason) == ("Failed", JobReason.DEADLINE_EXCEEDED)
    assert f"active for 100 s of {limit} s" in status.message


def test_a_suspended_job_uses_no_active_time(build):
    job = build.admitted(activeDeadlineSeconds=600)
    seen = build.see(suspended(job), jobs=[build.job()], pods=[build.pod()], now=100)
    job = build.after(suspended(job), decide(seen))
    again = decide(build.see(job, now=DAYS_LATER)).status
    assert (again.phase, again.active_seconds) == ("Suspended", 100)


def test_an_attempt_that_ended_while_the_operator_was_down_counts_until_its_end(build):
    """It is judged by its end, not by a deadline that passed later."""
    job = build.admitted(activeDeadlineSeconds=600, maxRestarts=1)
    pods = [build.pod(phase="Failed", exit_code=3, ended=50)]
    status = decide(build.see(job, jobs=[build.job()], pods=pods, now=5000)).status
    assert (status.attempts[-1].outcome, status.active_seconds) == ("Failed", 50)


def test_the_time_of_a_lost_pod_counts_until_its_job_has_failed(build):
    job = build.admitted(activeDeadlineSeconds=600)
    failed = build.job(conditions=[("Failed", 70)])
    status = decide(build.see(job, jobs=[failed], now=5000)).status
    assert (status.attempts[-1].outcome, status.active_seconds) == ("Infrastructure", 70)


def test_a_clock_that_was_set_back_does_not_reduce_the_active_time(build):
    job = build.admitted(now=1000, activeDeadlineSeconds=600)
    assert preempted(build, job, at=400).status.active_seconds == 0


def test_a_resumed_job_records_when_it_was_resumed_before_it_requests_a_plan(build):
    job = suspended(build.gpujob())
    job = build.after(job, decide(build.see(job, now=5)))
    job = suspended(job, suspend=False)
    found = decide(build.see(job, now=DAYS_LATER))
    assert (found.status.phase, found.actions) == ("Pending", ())
    resumed = build.after(job, found)
    assert times.waits_since(resumed) == build.at(DAYS_LATER)
    assert decide(build.see(resumed, now=DAYS_LATER + 9)).actions == (RequestPlan(attempt=1),)


def test_a_job_waits_since_its_last_attempt_ended(build):
    job = preempted(build, build.admitted(), at=100)
    assert times.waits_since(job) == build.at(100)
