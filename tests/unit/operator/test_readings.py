# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from msgspec import structs

from gpupack_crds.results import SCHEMA
from gpupack_operator.decision import readings
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import Plan
from gpupack_operator.decision.workers import Worker


def result(headline, **fields):
    return json.dumps({"schema": SCHEMA, "headline": headline, **fields})


@pytest.fixture
def read(build):
    """Read the messages of workers 0, 1, …"""

    def reading(*messages):
        pods = [
            build.pod(i, phase="Succeeded", exit_code=0, message=message)
            for i, message in enumerate(messages)
        ]
        return readings.read(tuple(Worker(pod) for pod in reversed(pods)))

    return reading


def test_results_are_ordered_by_worker(read):
    found = read(result("a", metrics={"tflops": 1.5}), result("b"))
    assert [(each.worker, each.headline) for each in found.results] == [(0, "a"), (1, "b")]
    assert found.results[0].metrics == {"tflops": 1.5}


def test_results_contain_the_communication_of_workers(read):
    found = read(result("a", communication={"transport": "SHM", "bus_gb_per_s": 27.5}))
    (only,) = found.results
    assert (only.communication.transport, only.communication.bus_gb_per_s) == ("SHM", 27.5)


def test_the_headline_of_the_job_is_that_of_worker_0(read):
    assert read(result("a"), result("b")).headline == "a"
    assert read("", result("b")).headline == "b"


def test_a_missing_message_is_not_a_problem(read):
    assert read("", "") == readings.Readings(results=(), problems=())


def test_the_result_of_an_interrupted_worker_is_ignored(build):
    whole = build.pod(0, phase="Succeeded", exit_code=0, ended=20, message=result("whole"))
    part = build.pod(1, phase="Succeeded", exit_code=0, ended=21, message=result("a"), deleted=20)
    found = readings.read((Worker(whole), Worker(part)))
    assert [each.headline for each in found.results] == ["whole"]
    assert found.problems == ()


@pytest.mark.parametrize("garbage", ["hello", "{}", '{"schema":"x/v9"}', "[1]", '{"schema":'])
def test_an_invalid_message_is_a_problem_that_names_the_worker(read, garbage):
    found = read(result("a"), garbage)
    assert len(found.results) == 1
    assert found.problems[0].startswith("worker 1: ")


@pytest.mark.parametrize("message", ["hello", result("h", metrics={"x": 10**400})])
def test_an_invalid_message_does_not_change_the_outcome_of_the_job(build, message):
    pods = [build.pod(phase="Succeeded", exit_code=0, message=message)]
    jobs = [build.job(conditions=[("Complete", 9)])]
    status = decide(build.see(build.admitted(), jobs=jobs, pods=pods)).status
    valid = {found.type: found for found in status.conditions}["ResultsValid"]
    assert (status.phase, status.results) == ("Succeeded", ())
    assert (valid.status, valid.reason) == ("False", "ResultUnreadable")


def test_results_beyond_the_limit_lose_their_metrics_but_not_their_headline(read):
    big = result("h", metrics={"text": "x" * 3800})
    found = read(*[big] * 100)
    assert len(found.results) == 100
    assert found.results[0].metrics
    assert (found.results[99].headline, found.results[99].metrics) == ("h", {})


def test_the_text_of_a_worker_with_an_ignored_failure_is_no_result(build):
    """The text says why it failed."""
    failed = build.pod(0, phase="Failed", exit_code=6, message="out of luck")
    fine = build.pod(1, phase="Succeeded", exit_code=0, message=result("b"))
    found = readings.read((Worker(failed), Worker(fine)))
    assert (found.headline, found.problems) == ("b", ())


UNHEALTHY = result("unhealthy: compute", workload="burn-in", verified=True)


def failed_pod(build, message, **fields):
    return build.pod(phase="Failed", exit_code=3, ended=9, message=message, **fields)


def failed(build, message, **spec):
    """The status of a job whose only worker ended with exit code 3 and this message."""
    job = build.admitted(**spec)
    jobs = [build.job(conditions=[("Failed", 9)])]
    return decide(build.see(job, jobs=jobs, pods=[failed_pod(build, message)])).status


def valid(status):
    found = {each.type: each for each in status.conditions}["ResultsValid"]
    return found.status, found.reason


def test_a_failed_job_has_the_result_of_its_failed_worker(build):
    status = failed(build, UNHEALTHY)
    assert (status.phase, status.headline) == ("Failed", "unhealthy: compute")
    assert [(each.workload, each.verified) for each in status.results] == [("burn-in", True)]
    assert valid(status) == ("True", "ResultsRead")


def test_the_message_of_a_failed_job_has_the_headline_of_its_failed_worker(build):
    how = "container worker ended with exit code 3 (Error): unhealthy: compute"
    assert failed(build, UNHEALTHY).message.endswith(how)


def test_the_text_of_a_failed_worker_is_no_result(build):
    status = failed(build, "the loss is not a number")
    assert status.message.endswith("(Error): the loss is not a number")
    assert (status.results, valid(status)) == ((), ("Unknown", "NoResults"))


def test_a_json_log_is_no_result(build):
    status = failed(build, '{"level":"error","msg":"boom"}\n')
    assert status.message.endswith('(Error): {"level":"error","msg":"boom"}')
    assert (status.results, valid(status)) == ((), ("Unknown", "NoResults"))


def test_an_unreadable_result_does_not_hide_why_the_worker_failed(build):
    status = failed(build, UNHEALTHY[:-1])
    assert (status.phase, status.reason) == ("Failed", "WorkerFailed")
    assert status.message.endswith("ended with exit code 3 (Error)")
    assert (status.results, valid(status)) == ((), ("False", "ResultUnreadable"))


def test_the_result_of_a_worker_with_an_ignored_failure_is_read(build):
    status = failed(build, UNHEALTHY, failurePolicy=[{"exitCodes": [3], "action": "Ignore"}])
    assert (status.phase, status.headline) == ("Succeeded", "unhealthy: compute")
    assert valid(status) == ("True", "ResultsRead")


def test_the_headline_of_a_failed_worker_takes_precedence(build):
    fine = build.pod(0, phase="Succeeded", exit_code=0, message=result("healthy"))
    sick = failed_pod(build, UNHEALTHY, index=1)
    found = readings.read((Worker(fine), Worker(sick)))
    assert [each.headline for each in found.results] == ["healthy", "unhealthy: compute"]
    assert found.headline == "unhealthy: compute"


def test_a_repeated_attempt_leaves_no_result(build):
    job = build.admitted(maxRestarts=1)
    first = decide(build.see(job, jobs=[build.job()], pods=[failed_pod(build, UNHEALTHY)])).status
    assert (first.phase, first.results, first.headline) == ("Pending", (), "")
    assert valid(first) == ("Unknown", "Undetermined")
    job = structs.replace(job, status=first)
    answer = Plan(build.placement("a"), seconds=9)
    job = build.after(job, decide(build.see(job, answer=answer, now=12)))
    pods = [build.pod(attempt=2, phase="Succeeded", exit_code=0)]
    pods.append(failed_pod(build, UNHEALTHY, attempt=1))
    second = decide(build.see(job, jobs=[build.job(attempt=2)], pods=pods, now=20)).status
    assert (second.phase, second.results, second.headline) == ("Succeeded", (), "")
    assert valid(second) == ("Unknown", "NoResults")


def test_a_job_that_fails_while_it_waits_has_no_results(build):
    job = build.admitted(maxRestarts=1, activeDeadlineSeconds=20)
    pods = [failed_pod(build, UNHEALTHY)]
    job = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    job = structs.replace(job, spec=structs.replace(job.spec, active_deadline_seconds=1))
    status = decide(build.see(job, now=21)).status
    assert (status.phase, status.results) == ("Failed", ())
    assert valid(status) == ("Unknown", "NoResults")
