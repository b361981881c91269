# SPDX-License-Identifier: Apache-2.0
"""Objects that stay of failed attempts, and when the next attempt may begin."""

import pytest
from msgspec import structs

from gpupack_operator.decision.causes import last_lines
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import DeleteJob, NoPlan, RequestPlan, StopJob
from gpupack_operator.decision.reasons import JobReason

IGNORES = [{"exitCodes": [9], "action": "Ignore"}]


def failed_pod(build):
    return build.pod(phase="Failed", exit_code=3, ended=9, message="boom\n")


def failing(build, **spec):
    """A decision about a job with restarts whose worker has failed, and the job after it."""
    job = build.admitted(maxRestarts=9, **spec)
    decision = decide(build.see(job, jobs=[build.job()], pods=[failed_pod(build)]))
    return decision, build.after(job, decision)


def test_the_attempt_records_the_last_lines_of_a_failed_worker(build):
    _, job = failing(build)
    message = job.status.attempts[-1].message
    assert message.endswith("container worker ended with exit code 3 (Error): boom")


def test_a_failed_job_stays_while_the_next_attempt_runs(build):
    decision, job = failing(build)
    assert decision.actions == ()
    runs = build.see(job, jobs=[build.job()], pods=[failed_pod(build)], now=15)
    assert decide(runs).actions == ()
    over = [build.job(conditions=[("Failed", 15)])]
    again = decide(build.see(job, jobs=over, pods=[failed_pod(build)], now=16))
    assert again.actions == (RequestPlan(attempt=2, avoid=("a",)),)


def test_the_next_attempt_waits_for_a_terminating_worker(build):
    _, job = failing(build)
    over, pods = [build.job(conditions=[("FailureTarget", 11)])], [failed_pod(build)]
    running = decide(build.see(job, jobs=over, pods=[*pods, build.pod(1, deleted=10)], now=16))
    assert running.actions == ()


def test_a_job_that_does_not_end_by_itself_is_stopped_and_kept(build):
    _, job = failing(build)
    late = decide(build.see(job, jobs=[build.job()], pods=[failed_pod(build)], now=20))
    assert late.actions == (StopJob(name="train-1"),)


def test_the_other_workers_are_stopped_at_once_if_each_index_fails_alone(build):
    decision, _ = failing(build, failurePolicy=IGNORES)
    assert decision.actions == (StopJob(name="train-1"),)


def test_only_jobs_of_the_last_two_failed_attempts_stay(build):
    _, job = failing(build)
    first = job.status.attempts[0]
    attempts = tuple(structs.replace(first, number=number) for number in (1, 2, 3))
    job = structs.replace(job, status=structs.replace(job.status, attempt=3, attempts=attempts))
    jobs = [build.job(attempt=number, conditions=[("Failed", 10)]) for number in (1, 2, 3)]
    decision = decide(build.see(job, jobs=jobs, now=60))
    assert decision.actions == (DeleteJob(name="train-1", uid="uid-of-train-1", attempt=1),)


def test_no_failed_job_stays_after_an_attempt_whose_creation_was_forbidden(build):
    _, job = failing(build)
    first = job.status.attempts[0]
    refused = structs.replace(first, number=2, outcome="Infrastructure", reason="CreationForbidden")
    status = structs.replace(job.status, attempt=2, attempts=(first, refused))
    over = [build.job(conditions=[("Failed", 10)])]
    decision = decide(build.see(structs.replace(job, status=status), jobs=over, now=11))
    assert decision.actions == (DeleteJob(name="train-1", uid="uid-of-train-1", attempt=1),)


def test_no_failed_job_stays_while_the_pods_of_the_next_attempt_are_refused(build):
    """A quota of count/pods counts pods that have ended."""
    _, job = failing(build)
    over = [build.job(conditions=[("Failed", 10)])]
    refused = NoPlan(JobReason.CREATION_FORBIDDEN, "exceeded quota", retry_seconds=5.0)
    waiting = decide(build.see(job, jobs=over, now=20, answer=refused))
    assert waiting.actions == ()
    decision = decide(build.see(build.after(job, waiting), jobs=over, now=25))
    assert decision.actions == (DeleteJob(name="train-1", uid="uid-of-train-1", attempt=1),)


def test_a_deadline_deletes_no_job_that_failed_before_it(build):
    _, job = failing(build, activeDeadlineSeconds=20)
    job = structs.replace(job, spec=structs.replace(job.spec, active_deadline_seconds=1))
    over = [build.job(conditions=[("Failed", 11)])]
    decision = decide(build.see(job, jobs=over, pods=[failed_pod(build)], now=21))
    assert (decision.status.reason, decision.actions) == ("DeadlineExceeded", ())


def test_the_message_of_a_finished_job_says_that_its_gpus_are_released(build):
    job = build.admitted()
    status = decide(build.see(job, jobs=[build.job()], pods=[failed_pod(build)])).status
    (admitted,) = (found for found in status.conditions if found.type == "Admitted")
    assert (admitted.status, admitted.reason) == ("True", "Ended")
    assert admitted.message == "attempt 1 has ended and released its GPUs"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("one\n\n  two  \n", "one | two"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07done", "red done"),
        ("a\rb\x00c\u202ed", "a | b c d"),
        ("x" * 601, "…" + "x" * 599),
        ("", ""),
    ],
)
def test_the_end_of_a_log_becomes_one_line_without_control_characters(log, shown):
    assert last_lines(log) == shown
