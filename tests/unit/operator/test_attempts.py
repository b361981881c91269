# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import Attempt, Fault, GpuJobStatus
from gpupack_operator.decision import attempts
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import Verdict

LOST = Verdict(outcome="Infrastructure", reason="PodLost", message="m" * 2000)


def broken(build, *nodes, reason="WorkerFailed", worker=0, outcome="Failed"):
    """A status with an attempt on each of these nodes; the first ended at second 0."""
    status = GpuJobStatus()
    verdict = Verdict(outcome=outcome, reason=reason, message="", worker=worker)
    for second, node in enumerate(nodes):
        status = attempts.begin_attempt(status, build.placement(node), build.at(second))
        status = attempts.end_attempt(status, verdict, build.at(second))
    return status


def failing(build, count, *, seconds=1, outcome="Infrastructure", reason="PodLost"):
    """Make a status with consecutive attempts of equal length; the last ends at second 1000."""
    entry = {"started_at": build.stamp(1000 - seconds), "finished_at": build.stamp(1000)}
    entry["reason"] = reason
    return GpuJobStatus(
        attempts=tuple(Attempt(number=n + 1, outcome=outcome, **entry) for n in range(count))
    )


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60)])
def test_each_consecutive_failure_doubles_the_backoff(build, count, seconds):
    assert attempts.next_start(failing(build, count)) == build.at(1000 + seconds)


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (7, 64), (10, 512), (11, 600), (20, 600)])
def test_the_backoff_grows_for_attempts_that_never_ran(build, count, seconds):
    status = failing(build, count, seconds=400, reason="BindTimeout")
    assert attempts.next_start(status) == build.at(1000 + seconds)


@pytest.mark.parametrize(("count", "seconds"), [(1, 15), (2, 30), (6, 480), (7, 600), (20, 600)])
def test_the_first_backoff_after_forbidden_pods_is_fifteen_seconds(build, count, seconds):
    status = failing(build, count, reason="CreationForbidden")
    assert attempts.next_start(status) == build.at(1000 + seconds)


def test_an_attempt_that_ran_ends_the_series_of_those_that_never_ran(build):
    stuck, ran = failing(build, 9, reason="CannotStart"), failing(build, 1)
    status = structs.replace(stuck, attempts=(*stuck.attempts, *ran.attempts))
    assert attempts.next_start(status) == build.at(1060)


def test_a_long_healthy_run_resets_the_backoff(build):
    assert attempts.next_start(failing(build, 9, seconds=400)) == build.at(1001)


def test_a_suspended_job_starts_again_at_once(build):
    assert attempts.next_start(failing(build, 1, outcome="Suspended")) is None


def test_an_attempt_records_its_nodes_and_its_end(build):
    status = attempts.begin_attempt(GpuJobStatus(), build.placement("b", "a", "b"), build.at(0))
    status = attempts.end_attempt(status, LOST, build.at(9))
    assert status.attempts[0].nodes == "b,a"
    assert status.attempts[0].finished_at == build.stamp(9)
    assert len(status.attempts[0].message) == 1024


def test_the_last_twenty_attempts_are_kept(build):
    status = GpuJobStatus()
    for _ in range(25):
        status = attempts.begin_attempt(status, build.placement("a"), build.at(0))
        status = attempts.end_attempt(status, LOST, build.at(1))
    assert [entry.number for entry in status.attempts] == list(range(6, 26))


def test_many_nodes_are_shortened_for_the_column():
    assert attempts.shorten_names(("gpu-1", "gpu-2")) == "gpu-1,gpu-2"
    assert attempts.shorten_names(tuple(f"gpu-node-{n:03}" for n in range(100))).endswith(" +97")


def test_a_failed_attempt_records_worker_node_and_gpus(build):
    status = attempts.begin_attempt(GpuJobStatus(), build.placement("a", "b"), build.at(0))
    verdict = Verdict(outcome="Failed", reason="WorkerFailed", message="", worker=1)
    status = attempts.end_attempt(status, verdict, build.at(9))
    assert status.attempts[0].fault == Fault(worker=1, node="b", devices="GPU-1")


@pytest.mark.parametrize(
    ("outcome", "worker"), [("Preempted", 0), ("Succeeded", 0), ("Failed", None), ("Failed", 7)]
)
def test_an_attempt_without_a_failed_worker_has_no_fault(build, outcome, worker):
    assert broken(build, "a", outcome=outcome, worker=worker).attempts[0].fault is None


def test_nodes_of_failed_attempts_are_avoided_for_a_while(build):
    status = broken(build, "a", "b", "a", "c")
    assert attempts.nodes_to_avoid(status, build.at(10), 600) == ("c", "a", "b")
    assert attempts.nodes_to_avoid(status, build.at(602), 600) == ("c",)
    assert attempts.nodes_to_avoid(status, build.at(3), 0) == ()


@pytest.mark.parametrize("reason", [JobReason.OUT_OF_MEMORY, JobReason.POD_DELETED])
def test_a_node_that_did_not_cause_the_failure_is_not_avoided(build, reason):
    assert attempts.nodes_to_avoid(broken(build, "a", reason=reason), build.at(1), 600) == ()
