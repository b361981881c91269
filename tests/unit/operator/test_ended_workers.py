# SPDX-License-Identifier: Apache-2.0
"""Records of ended workers, for an operator that starts after their pods are deleted."""

import pytest
from msgspec import structs

from gpupack_crds import indices
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_crds.gpujob_status import EndedWorkers
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.reasons import JobReason

IGNORE_6 = [{"exitCodes": [6], "action": "Ignore"}]
HOUR = 3600


RESULT = '{"schema": "gpupack.dev/result/v1", "headline": "3 it/s", "workload": "train"}'


def ended_well(build, index, *, at=20, message=""):
    return build.pod(index, phase="Succeeded", exit_code=0, ended=at, message=message)


def ignored(build, index, *, at=20):
    return build.pod(index, phase="Failed", exit_code=6, ended=at)


@pytest.fixture
def gang(build):
    """Gang of two; `sees` decides about these pods at a second."""

    class Gang:
        def __init__(self):
            self.job = build.admitted(nodes=("a", "b"), failurePolicy=IGNORE_6)

        def sees(self, *pods, now, conditions=()):
            jobs = [build.job(conditions=conditions)]
            decision = decide(build.see(self.job, jobs=jobs, pods=pods, now=now))
            self.job = build.after(self.job, decision)
            return decision

    return Gang()


def test_an_ended_worker_is_recorded_after_a_delay(gang, build):
    pods = (ended_well(build, 0), build.pod(1))
    assert gang.sees(*pods, now=21).again_at == build.at(25)
    assert gang.job.status.ended_workers is None
    gang.sees(*pods, now=25)
    assert gang.job.status.ended_workers == EndedWorkers(succeeded="0", last_at=build.stamp(20))
    assert gang.sees(*pods, now=30).again_at is None


def test_a_gang_continues_after_the_pod_of_an_ended_worker_is_gone(gang, build):
    """Its node was removed, and the operator has started since."""
    gang.sees(ended_well(build, 0), build.pod(1), now=30)
    assert gang.job.status.phase == "Running"
    found = gang.sees(build.pod(1), now=HOUR).status
    assert (found.phase, found.attempt, found.attempts[-1].finished_at) == ("Running", 1, None)


def test_the_job_succeeds_when_the_other_workers_have_completed(gang, build):
    gang.sees(ended_well(build, 0), build.pod(1), now=30)
    status = gang.sees(ended_well(build, 1, at=90), now=91, conditions=[("Complete", 91)]).status
    assert (status.phase, status.reason) == ("Succeeded", JobReason.COMPLETED)
    assert (status.ended_workers, status.attempts[-1].ended_at) == (None, build.stamp(90))


def test_the_result_of_a_worker_without_a_pod_counts_for_the_job(gang, build):
    gang.sees(ended_well(build, 0, message=RESULT), build.pod(1), now=30)
    assert gang.job.status.results == ()
    status = gang.sees(ended_well(build, 1, at=90), now=91).status
    assert (status.headline, [each.worker for each in status.results]) == ("3 it/s", [0])


def test_a_recorded_result_is_kept_if_clock_skew_makes_the_worker_look_interrupted(gang, build):
    """The record contains the worker's success and its result."""
    gang.sees(ended_well(build, 0, message=RESULT), build.pod(1), now=30)
    late = build.pod(
        0,
        phase="Succeeded",
        exit_code=0,
        ended=20,
        message=RESULT,
        disrupted=(20, "DeletionByPodGC"),
    )
    late = structs.replace(
        late, metadata=structs.replace(late.metadata, deletion_timestamp=build.at(20))
    )
    status = gang.sees(late, ended_well(build, 1, at=90), now=91).status
    assert [each.worker for each in status.results] == [0]


def test_a_job_succeeds_although_no_pod_is_left(gang, build):
    gang.sees(ended_well(build, 0), build.pod(1), now=30)
    gang.job = structs.replace(
        gang.job,
        status=structs.replace(
            gang.job.status, ended_workers=EndedWorkers(succeeded="0-1", last_at=build.stamp(50))
        ),
    )
    status = gang.sees(now=HOUR, conditions=[("Complete", 52)]).status
    assert (status.phase, status.attempts[-1].ended_at) == ("Succeeded", build.stamp(50))


def test_an_ignored_failure_is_recorded_too(gang, build):
    gang.sees(ignored(build, 0), build.pod(1), now=30)
    assert gang.job.status.ended_workers.ignored == "0"
    status = gang.sees(ended_well(build, 1, at=90), now=91, conditions=[("Failed", 91)]).status
    assert (status.phase, status.reason) == ("Succeeded", JobReason.FAILURES_IGNORED)
    assert "workers 0" in status.message


def test_a_worker_that_ended_before_the_others_started_counts_as_started(gang, build):
    waiting = build.pod(1, phase="Pending", waiting="ContainerCreating")
    gang.sees(ended_well(build, 0), waiting, now=25)
    assert gang.job.status.phase == "Admitted"
    assert gang.sees(build.pod(1), now=40).status.phase == "Running"


def test_a_lost_worker_does_not_count_as_ended(gang, build):
    gang.sees(build.pod(0), build.pod(1), now=30)
    found = gang.sees(build.pod(1), now=HOUR).status
    assert found.attempts[-1].reason == JobReason.POD_LOST


def test_a_worker_that_was_requested_to_end_is_not_recorded(gang, build):
    drained = build.pod(0, phase="Succeeded", exit_code=0, ended=21, deleted=20)
    gang.sees(drained, build.pod(1), now=40)
    assert gang.job.status.ended_workers is None


def test_a_job_created_again_for_an_attempt_starts_with_all_workers(gang, build):
    waiting = build.pod(1, phase="Pending", waiting="ContainerCreating")
    gang.sees(ended_well(build, 0), waiting, now=25)
    again = decide(build.see(gang.job, jobs=[], pods=[], now=30))
    assert again.status.ended_workers is None


def test_the_interval_between_records_grows_with_the_number_of_ended_workers(build):
    job = build.admitted(nodes=("a",) * 300)
    pods = [ended_well(build, index) for index in range(200)]
    running = [build.pod(index) for index in range(200, 300)]
    job = build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods + running, now=30)))
    pods.append(ended_well(build, 200, at=40))
    found = decide(build.see(job, jobs=[build.job()], pods=pods + running[1:], now=41))
    assert found.again_at == build.at(40 + 5 + 200 // 20)


def test_the_indices_of_the_largest_gang_are_short():
    every_second = range(0, MAX_WORKERS, 2)
    text = indices.written(every_second)
    assert len(text) < 2600 < indices.MAX_CHARACTERS
    assert indices.read(text) == list(every_second)
