# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import DeleteGpuJob, DeleteJob, StopJob


def failed(build, **spec):
    """A job that failed at second 10."""
    job = build.admitted(**spec)
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    return build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))


def test_a_job_is_deleted_when_its_time_to_live_is_over(build):
    job = failed(build, ttlSecondsAfterFinished=60)
    assert decide(build.see(job, now=69)).again_at == build.at(70)
    assert decide(build.see(job, now=70)).actions == (DeleteGpuJob(),)


def test_a_job_without_time_to_live_is_kept_with_its_pods(build):
    ended = build.job(conditions=[("Failed", 10)])
    decision = decide(build.see(failed(build), jobs=[ended], now=99999))
    assert (decision.actions, decision.again_at) == ((), None)


def test_the_job_controller_gets_time_to_end_a_job_before_it_is_stopped(build):
    job = failed(build)
    early = decide(build.see(job, jobs=[build.job()], now=19))
    late = decide(build.see(job, jobs=[build.job()], now=20))
    assert (early.actions, early.again_at) == ((), build.at(20))
    assert late.actions == (StopJob(name="train-1"),)


@pytest.mark.parametrize("duplicate", ["Succeeded", "Running"])
def test_a_job_whose_pods_have_all_succeeded_is_left_to_its_controller(build, duplicate):
    job = build.admitted()
    pods = [build.pod(phase="Succeeded")]
    done = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
    pods.append(build.pod(phase=duplicate))
    actions = decide(build.see(done, jobs=[build.job()], pods=pods, now=60)).actions
    assert actions == (() if duplicate == "Succeeded" else (StopJob(name="train-1"),))


def test_a_stopped_job_is_not_stopped_again(build):
    decision = decide(build.see(failed(build), jobs=[build.job(suspend=True)], now=60))
    assert decision.actions == ()


def test_jobs_of_earlier_attempts_are_deleted(build):
    stray = build.job(attempt=7)
    decision = decide(build.see(failed(build), jobs=[stray], now=60))
    assert decision.actions == (DeleteJob(name="train-7", uid="uid-of-train-7", attempt=7),)


def test_later_observations_do_not_change_the_outcome(build):
    job = failed(build)
    decision = decide(build.see(job, pods=[build.pod(phase="Succeeded")], now=60))
    assert decision.status == job.status
