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
        status = attempts.opened(status, build.placement(node), build.at(second))
        status = attempts.closed(status, verdict, build.at(second))
    return status


def failing(build, count, *, seconds=1, outcome="Infrastructure", reason="PodLost"):
    """A status with so many attempts in a row, each so long, the last ending at second 1000."""
    entry = {"started_at": build.stamp(1000 - seconds), "finished_at": build.stamp(1000)}
    entry["reason"] = reason
    return GpuJobStatus(
        attempts=tuple(Attempt(number=n + 1, outcome=outcome, **entry) for n in range(count))
    )


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60)])
def test_each_failure_in_a_row_doubles_the_wait(build, count, seconds):
    assert attempts.next_start(failing(build, count)) == build.at(1000 + seconds)


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (7, 64), (10, 512), (11, 600), (20, 600)])
def test_attempts_that_never_ran_are_repeated_less_and_less_often(build, count, seconds):
    status = failing(build, count, seconds=400, reason="BindTimeout")
    assert attempts.next_start(status) == build.at(1000 + seconds)


@pytest.mark.parametrize(("count", "seconds"), [(1, 15), (2, 30), (6, 480), (7, 600), (20, 600)])
def test_attempts_whose_pods_were_forbidden_leave_time_for_others_from_the_first_on(
    build, count, seconds
):
    status = failing(build, count, reason="CreationForbidden")
    assert attempts.next_start(status) == build.at(1000 + seconds)


def test_an_attempt_that_ran_ends_a_row_of_those_that_did_not(build):
    stuck, ran = failing(build, 9, reason="CannotStart"), failing(build, 1)
    status = structs.replace(stuck, attempts=(*stuck.attempts, *ran.attempts))
    assert attempts.next_start(status) == build.at(1060)


def test_a_long_healthy_run_begins_a_new_row(build):
    assert attempts.next_start(failing(build, 9, seconds=400)) == build.at(1001)


def test_a_suspended_job_starts_again_at_once(build):
    assert attempts.next_start(failing(build, 1, outcome="Suspended")) is None


def test_an_attempt_keeps_its_nodes_and_cause(build):
    status = attempts.opened(GpuJobStatus(), build.placement("b", "a", "b"), build.at(0))
    status = attempts.closed(status, LOST, build.at(9))
    assert status.attempts[0].nodes == "b,a"
    assert status.attempts[0].finished_at == build.stamp(9)
    assert len(status.attempts[0].message) == 1024


def test_the_last_twenty_attempts_are_kept(build):
    status = GpuJobStatus()
    for _ in range(25):
        status = attempts.opened(status, build.placement("a"), build.at(0))
        status = attempts.closed(status, LOST, build.at(1))
    assert [entry.number for entry in status.attempts] == list(range(6, 26))


def test_many_nodes_are_shortened_for_the_column():
    assert attempts.shortened(("gpu-1", "gpu-2")) == "gpu-1,gpu-2"
    assert attempts.shortened(tuple(f"gpu-node-{n:03}" for n in range(100))).endswith(" +97")


def test_an_attempt_tells_which_worker_broke_where_and_on_which_gpus(build):
    status = attempts.opened(GpuJobStatus(), build.placement("a", "b"), build.at(0))
    verdict = Verdict(outcome="Failed", reason="WorkerFailed", message="", worker=1)
    status = attempts.closed(status, verdict, build.at(9))
    assert status.attempts[0].fault == Fault(worker=1, node="b", devices="GPU-1")


@pytest.mark.parametrize(
    ("outcome", "worker"), [("Preempted", 0), ("Succeeded", 0), ("Failed", None), ("Failed", 7)]
)
def test_an_attempt_that_no_worker_of_its_broke_has_no_fault(build, outcome, worker):
    assert broken(build, "a", outcome=outcome, worker=worker).attempts[0].fault is None


def test_nodes_on_which_attempts_broke_are_avoided_for_a_while_the_latest_first(build):
    status = broken(build, "a", "b", "a", "c")
    assert attempts.to_avoid(status, build.at(10), 600) == ("c", "a", "b")
    assert attempts.to_avoid(status, build.at(602), 600) == ("c",)
    assert attempts.to_avoid(status, build.at(3), 0) == ()


@pytest.mark.parametrize("reason", [JobReason.OUT_OF_MEMORY, JobReason.POD_DELETED])
def test_a_node_that_could_do_nothing_for_it_is_not_avoided(build, reason):
    assert attempts.to_avoid(broken(build, "a", reason=reason), build.at(1), 600) == ()
