# SPDX-License-Identifier: Apache-2.0
"""A worker ends with the container that has its GPUs, whatever runs next to it."""

import msgspec
import pytest

from gpupack_kubeclient.objects import Pod
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import StopJob
from gpupack_operator.decision.view import view

IGNORE_6 = [{"exitCodes": [6], "action": "Ignore"}]
RESULT = '{"schema": "gpupack.dev/result/v1", "headline": "9 TFLOP/s"}'


def with_second(pod, *, state=None, first=False):
    """The pod with a log shipper that runs, or is in this state; `first`: before the worker."""
    built = msgspec.to_builtins(pod)
    second = {"name": "shipper"}
    status = {"name": "shipper", "state": state or {"running": {}}}
    for field, item in (("spec", second), ("status", status)):
        key = "containers" if field == "spec" else "containerStatuses"
        found = list(built[field].get(key, ()))
        built[field][key] = [item, *found] if first else [*found, item]
    return msgspec.convert(built, Pod)


def judged(build, *pods, now=30, **spec):
    job = build.admitted(nodes=tuple("a" * len(pods)), **spec)
    return decide(build.see(job, jobs=[build.job()], pods=pods, now=now)), job


@pytest.mark.parametrize("first", [True, False])
def test_a_worker_succeeds_although_a_log_shipper_continues(build, first):
    pod = build.pod(exit_code=0, ended=20, container="main", message=RESULT)
    found, _ = judged(build, with_second(pod, first=first))
    assert (found.status.phase, found.status.headline) == ("Succeeded", "9 TFLOP/s")


def test_a_remaining_container_is_stopped_after_the_attempt(build):
    pod = with_second(build.pod(exit_code=0, ended=20))
    found, job = judged(build, pod)
    ended = build.after(job, found)
    assert found.actions == ()
    assert found.again_at == build.at(40)
    later = decide(build.see(ended, jobs=[build.job()], pods=[pod], now=40))
    assert later.actions == (StopJob(name="train-1"),)


def test_a_gang_continues_until_each_worker_has_ended(build):
    ended = with_second(build.pod(0, exit_code=0, ended=20))
    assert judged(build, ended, with_second(build.pod(1)))[0].status.phase != "Succeeded"
    both = [ended, with_second(build.pod(1, exit_code=0, ended=25))]
    assert judged(build, *both)[0].status.phase == "Succeeded"


def test_a_failed_worker_fails_the_attempt_although_a_log_shipper_continues(build):
    found, _ = judged(build, with_second(build.pod(exit_code=3, ended=20)), maxRestarts=1)
    attempt = found.status.attempts[-1]
    assert (attempt.outcome, found.status.restarts) == ("Failed", 1)
    assert "container worker ended with exit code 3" in attempt.message


def test_a_log_shipper_does_not_prolong_an_attempt_with_ignored_failures(build):
    failed = with_second(build.pod(0, exit_code=6, ended=20))
    done = with_second(build.pod(1, exit_code=0, ended=21))
    running = with_second(build.pod(1))
    assert judged(build, failed, running, failurePolicy=IGNORE_6)[0].status.phase != "Succeeded"
    found, _ = judged(build, failed, done, failurePolicy=IGNORE_6)
    assert (found.status.phase, found.status.reason) == ("Succeeded", "FailuresIgnored")


def test_the_exit_code_of_a_log_shipper_after_the_worker_is_ignored(build):
    broken = {"terminated": {"exitCode": 1, "finishedAt": build.stamp(22)}}
    pod = with_second(build.pod(phase="Failed", exit_code=0, ended=20), state=broken)
    assert judged(build, pod)[0].status.phase == "Succeeded"


def test_a_container_that_fails_while_the_worker_runs_fails_the_attempt(build):
    broken = {"terminated": {"exitCode": 1, "finishedAt": build.stamp(22)}}
    found, _ = judged(build, with_second(build.pod(), state=broken))
    assert "container shipper ended with exit code 1" in found.status.attempts[-1].message


def test_the_container_that_has_the_gpus_is_the_worker(build):
    pod = with_second(build.pod(exit_code=0, ended=20))
    seen = build.see(build.admitted(), jobs=[build.job()], pods=[pod], now=30)
    (worker,) = view(seen, seen.job.status, seen.job.status.attempts[-1]).workers
    assert (worker.main_container, worker.succeeded, worker.has_ended) == ("worker", True, True)


def test_an_init_container_is_no_worker(build):
    """The job's own template gives GPUs to an ordinary container."""
    built = msgspec.to_builtins(build.pod())
    built["spec"]["initContainers"] = built["spec"]["containers"]
    built["spec"]["containers"] = [{"name": "other"}]
    pod = msgspec.convert(built, Pod)
    seen = build.see(build.admitted(), jobs=[build.job()], pods=[pod])
    found = view(seen, seen.job.status, seen.job.status.attempts[-1])
    assert (found.workers, found.foreign_pods) == ((), (pod.metadata.name,))
