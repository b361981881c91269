# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_crds.results import SCHEMA
from gpupack_operator.decision import readings
from gpupack_operator.decision.decide import decide
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


def test_results_stand_in_the_order_of_the_workers(read):
    found = read(result("a", metrics={"tflops": 1.5}), result("b"))
    assert [(each.worker, each.headline) for each in found.results] == [(0, "a"), (1, "b")]
    assert found.results[0].metrics == {"tflops": 1.5}


def test_worker_0_speaks_for_the_job(read):
    assert read(result("a"), result("b")).headline == "a"
    assert read("", result("b")).headline == "b"


def test_no_message_is_no_problem(read):
    assert read("", "") == readings.Readings(results=(), problems=())


@pytest.mark.parametrize("garbage", ["hello", "{}", '{"schema":"x/v9"}', "[1]", '{"schema":'])
def test_garbage_is_a_problem_that_names_the_worker(read, garbage):
    found = read(result("a"), garbage)
    assert len(found.results) == 1
    assert found.problems[0].startswith("worker 1: ")


def test_garbage_does_not_change_the_outcome_of_the_job(build):
    pods = [build.pod(phase="Succeeded", exit_code=0, message="hello")]
    jobs = [build.job(conditions=[("Complete", 9)])]
    status = decide(build.see(build.admitted(), jobs=jobs, pods=pods)).status
    valid = {found.type: found for found in status.conditions}["ResultsValid"]
    assert status.phase == "Succeeded"
    assert (valid.status, valid.reason) == ("False", "ResultUnreadable")


def test_results_beyond_what_etcd_takes_lose_their_figures_but_not_their_headline(read):
    big = result("h", metrics={"text": "x" * 3800})
    found = read(*[big] * 100)
    assert len(found.results) == 100
    assert found.results[0].metrics
    assert (found.results[99].headline, found.results[99].metrics) == ("h", {})


def test_a_worker_whose_failure_is_ignored_has_no_result(build):
    """It wrote why it failed."""
    failed = build.pod(0, phase="Failed", exit_code=6, message="out of luck")
    fine = build.pod(1, phase="Succeeded", exit_code=0, message=result("b"))
    found = readings.read((Worker(failed), Worker(fine)))
    assert (found.headline, found.problems) == ("b", ())
