# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_operator.decision.restarts import Step, next_step
from gpupack_operator.decision.view import Verdict, view

RULES = [{"exitCodes": [10], "action": "Retry"}, {"exitCodes": [10, 11], "action": "Fail"}]

CASES = [
    ("Infrastructure", None, 0, Step.RETRY),
    ("Suspended", None, 0, Step.RETRY),
    ("DeadlineExceeded", None, 5, Step.GIVE_UP),
    ("Failed", 1, 5, Step.RETRY_COUNTED),
    ("Failed", 1, 0, Step.GIVE_UP),
    ("Failed", 10, 0, Step.RETRY),
    ("Failed", 11, 5, Step.GIVE_UP),
    ("Failed", None, 5, Step.RETRY_COUNTED),
]


@pytest.mark.parametrize(("outcome", "exit_code", "max_restarts", "step"), CASES)
def test_the_outcome_and_the_failure_policy_decide_the_next_step(
    build, outcome, exit_code, max_restarts, step
):
    job = build.admitted(maxRestarts=max_restarts, failurePolicy=RULES)
    verdict = Verdict(outcome=outcome, reason="X", message="", exit_code=exit_code)
    seen = view(build.see(job), job.status, job.status.attempts[-1])
    assert next_step(verdict, seen, job.status) is step


def test_a_job_without_restarts_left_ends(build):
    job = build.admitted(maxRestarts=2)
    status = structs.replace(job.status, restarts=2)
    verdict = Verdict(outcome="Failed", reason="X", message="", exit_code=1)
    seen = view(build.see(job), status, status.attempts[-1])
    assert next_step(verdict, seen, status) is Step.GIVE_UP


def test_a_permanent_failure_is_not_retried(build):
    job = build.admitted(maxRestarts=9)
    verdict = Verdict(outcome="Failed", reason="X", message="", permanent=True)
    seen = view(build.see(job), job.status, job.status.attempts[-1])
    assert next_step(verdict, seen, job.status) is Step.GIVE_UP
