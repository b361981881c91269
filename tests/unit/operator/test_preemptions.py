# SPDX-License-Identifier: Apache-2.0
"""Victims and preemptors."""

import dataclasses

import msgspec
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, Preemption, Victims
from gpupack_crds.plan import Drained, MoveOrder, Stop
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    AttemptMove,
    AttemptPreemption,
    DeleteJob,
    NoPlan,
    Plan,
    PlanPending,
    RequestPlan,
)
from gpupack_operator.decision.notices import notices
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.waiting_jobs import Key


def preemption(build, *attempts, reason="InCohortReclamation"):
    victims = (Victims(reason=reason, attempts=attempts),)
    return Preemption(since=build.stamp(0), victims=victims, placement=build.placement("a"))


def named(build, name, *, uid=None, namespace="team", **status):
    job = build.gpujob(status=GpuJobStatus(**status))
    meta = structs.replace(job.metadata, name=name, namespace=namespace, uid=uid or f"uid-{name}")
    return structs.replace(job, metadata=meta)


@pytest.fixture
def stopped(build):
    """Decide about a running job that is preempted for `urgent`."""

    def look(namespace="team", **observed):
        job = build.admitted()
        by = AttemptPreemption(reason="InCohortReclamation", preemptor=(namespace, "urgent"))
        seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),), **observed)
        return decide(dataclasses.replace(seen, preemption=by))

    return look


def test_the_job_of_a_victim_is_deleted_without_counting_a_restart(stopped):
    decision = stopped()
    status = decision.status
    assert [type(action) for action in decision.actions] == [DeleteJob]
    assert (status.phase, status.restarts, status.preemptions) == ("Pending", 0, 1)
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Preempted", "InCohortReclamation")
    assert attempt.message == "stopped for GPUJob urgent, which reclaims its nominal quota"


def test_the_message_of_a_victim_omits_names_of_other_namespaces(stopped):
    (attempt,) = stopped("other").status.attempts
    assert attempt.message.startswith("stopped for a job of another namespace, ")


def test_a_victim_that_succeeded_before_its_preemption_has_succeeded(build):
    by = AttemptPreemption(reason="Priority", preemptor=("team", "urgent"))
    seen = build.see(
        build.admitted(), jobs=(build.job(),), pods=(build.pod(phase="Succeeded", exit_code=0),)
    )
    decision = decide(dataclasses.replace(seen, preemption=by))
    assert (decision.status.phase, decision.status.preemptions) == ("Succeeded", 0)


def test_victims_are_written_at_once_with_the_reason(build):
    job = build.gpujob()
    waits = PlanPending("DoesNotFit", "full")
    due = build.at(25)
    waiting = build.after(job, decide(build.see(job, answer=waits, now=10, next_request_at=due)))
    found = preemption(build, "uid-v/1")
    answer = PlanPending("DoesNotFit", "full, still", preemption=found, seconds=9)
    seen = build.see(waiting, answer=answer, now=11, wait_message=10, next_request_at=due)
    decision = decide(seen)
    assert decision.status.preemption == found
    events = [notice.reason for notice in notices(waiting, decision.status)]
    assert "Preempting" in events


@pytest.mark.parametrize("ending", ["admitted", "given up", "suspended"])
def test_a_job_that_no_longer_waits_for_victims_preempts_none(build, ending):
    waiting = GpuJobStatus(preemption=preemption(build, "uid-v/1"))
    job = build.gpujob(status=waiting, suspend=ending == "suspended")
    answers = {
        "admitted": Plan(build.placement("a"), 9),
        "given up": PlanPending("DoesNotFit", "full"),
    }
    answer = answers.get(ending)
    status = decide(build.see(job, answer=answer, next_request_at=build.at(25))).status
    assert status.preemption is None


def test_a_request_without_an_answer_keeps_the_victims(build):
    found = preemption(build, "uid-v/1")
    job = build.gpujob(status=GpuJobStatus(preemption=found))
    answer = NoPlan("SchedulerUnavailable", "no answer")
    assert decide(build.see(job, answer=answer)).status.preemption == found
    assert decide(build.see(job)).actions == (RequestPlan(1),)


def test_victims_are_found_by_uid_and_attempt(build):
    known = Preemptions()
    victim = named(build, "victim", namespace="other")
    assert known.record(victim, gone=False) == ()
    first = named(build, "urgent", preemption=preemption(build, "uid-victim/1"))
    assert known.record(first, gone=False) == (Key("other", "victim"),)
    assert known.record(first, gone=False) == ()
    assert known.preemption_of(victim, 1).preemptor == ("team", "urgent")
    assert known.preemption_of(victim, 2) is None


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "admitted"])
def test_a_preemptor_that_no_longer_waits_preempts_no_job(build, gone):
    known = Preemptions()
    victim = named(build, "victim")
    known.record(victim, gone=False)
    waits = {"preemption": preemption(build, "uid-victim/1")}
    known.record(named(build, "urgent", **waits), gone=False)
    known.record(named(build, "urgent", phase="Admitted", **waits), gone=gone)
    assert known.preemption_of(victim, 1) is None


@pytest.mark.parametrize("leaves", ["deleted", "suspended"])
def test_a_deleted_or_suspended_preemptor_preempts_no_job(build, leaves):
    known = Preemptions()
    victim = named(build, "victim")
    known.record(victim, gone=False)
    urgent = named(build, "urgent", preemption=preemption(build, "uid-victim/1"))
    if leaves == "deleted":
        meta = structs.replace(urgent.metadata, deletion_timestamp=build.at(0))
        urgent = structs.replace(urgent, metadata=meta)
    else:
        urgent = structs.replace(urgent, spec=structs.replace(urgent.spec, suspend=True))
    assert known.record(urgent, gone=False) == ()
    assert known.preemption_of(victim, 1) is None


def test_a_victim_of_two_jobs_ends_while_one_of_them_waits(build):
    known = Preemptions()
    victim = named(build, "victim")
    for name in ("first", "second"):
        waits = {"preemption": preemption(build, "uid-victim/1")}
        known.record(named(build, name, **waits), gone=False)
    known.record(named(build, "first"), gone=True)
    assert known.preemption_of(victim, 1).preemptor == ("team", "second")


def test_the_largest_preemption_is_read_back_as_it_was_written(build):
    found = preemption(build, *(f"uid-{number}/1" for number in range(4096)))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Preemption) == found


def test_a_preemption_for_a_pod_names_the_pod(build):
    known = Preemptions()
    job = named(build, "victim", uid="uid-v")
    known.record(job, gone=False)
    stop = Stop(attempt="uid-v/1", reason="InCohortFairSharing", namespace="team", pod="notebook")
    assert known.replace_orders((stop,)) == (Key("team", "victim"),)
    assert known.replace_orders((stop,)) == ()
    by = known.preemption_of(job, 1)
    assert (by.kind, by.preemptor) == ("pod", ("team", "notebook"))
    known.replace_orders(())
    assert known.preemption_of(job, 1) is None


def test_the_message_of_a_victim_of_a_pod_names_the_pod(build):
    job = build.admitted()
    by = AttemptPreemption(reason="Priority", preemptor=("team", "notebook"), kind="pod")
    seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),))
    (attempt,) = decide(dataclasses.replace(seen, preemption=by)).status.attempts
    assert attempt.message == "stopped for pod notebook, which has a higher priority"


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        ("team", "stopped for reservation day, whose time window needs the GPUs"),
        ("lab", "stopped for a reservation of another namespace, whose time window needs the GPUs"),
    ],
)
def test_the_message_of_a_victim_of_a_window_names_a_reservation_of_its_namespace_only(
    build, namespace, message
):
    known, job = Preemptions(), named(build, "victim", uid="uid-v")
    known.record(job, gone=False)
    known.replace_orders(
        (Stop(attempt="uid-v/1", reason="TimeWindow", namespace=namespace, pod="day"),)
    )
    by = known.preemption_of(job, 1)
    admitted = build.admitted()
    seen = build.see(admitted, jobs=(build.job(),), pods=(build.pod(),))
    (attempt,) = decide(dataclasses.replace(seen, preemption=by)).status.attempts
    assert attempt.message == message


def test_a_preemption_for_maintenance_is_new_once_and_lasts_until_its_end(build):
    known = Preemptions()
    job = named(build, "victim", uid="uid-v")
    known.record(job, gone=False)
    drained = Drained(attempt="uid-v/1", node="a", cause="fan")
    assert known.replace_orders((), (drained,)) == (Key("team", "victim"),)
    assert known.replace_orders((), (drained,)) == ()
    assert known.preemption_of(job, 1).why == "fan"
    known.replace_orders(())
    assert known.preemption_of(job, 1) is None


def test_an_attempt_whose_gpu_failed_records_node_and_gpu(build):
    by = AttemptPreemption(
        reason="GpuFailed", preemptor=("", "a"), kind="node", why="GPU-1: XID 79"
    )
    seen = build.see(build.admitted(), jobs=(build.job(),), pods=(build.pod(),))
    decision = decide(dataclasses.replace(seen, preemption=by))
    assert [type(action) for action in decision.actions] == [DeleteJob]
    (attempt,) = decision.status.attempts
    assert (attempt.outcome, attempt.reason) == ("Infrastructure", "GpuFailed")
    assert attempt.message == "a GPU of node a failed, GPU-1: XID 79"
    assert (attempt.fault.node, attempt.fault.devices) == ("a", "GPU-1")
    assert (decision.status.restarts, decision.status.preemptions) == (0, 0)


def test_a_job_stopped_for_maintenance_names_node_and_reason(build):
    job = build.admitted()
    by = AttemptPreemption(
        reason="Maintenance", preemptor=("", "a"), kind="node", why="fan is broken"
    )
    seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),))
    status = decide(dataclasses.replace(seen, preemption=by)).status
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Preempted", "Maintenance")
    assert attempt.message == "stopped for maintenance of node a: fan is broken"
    assert (status.restarts, status.preemptions) == (0, 1)


def order(build, until=60):
    return MoveOrder(
        attempt=f"{build.UID}/1",
        node="a",
        cause="fan",
        until=build.stamp(until),
        preemption=preemption(build, f"{build.UID}/1", reason="Maintenance"),
    )


def moved(build, now=5, until=60, **observed):
    """Decide about a running job that is moved."""
    known = Preemptions()
    job = build.admitted()
    known.record(job, gone=False)
    known.replace_orders((), (), (order(build, until),))
    seen = build.see(job, jobs=(build.job(),), now=now, **{"pods": (build.pod(),)} | observed)
    return decide(dataclasses.replace(seen, move=known.move_of(job, 1)))


def test_the_end_of_a_moved_attempt_and_its_new_place_are_written_together(build):
    decision = moved(build)
    status = decision.status
    assert [type(action) for action in decision.actions] == [DeleteJob]
    assert status.preemption == order(build).preemption
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Moved", "Maintenance")
    assert attempt.message == "moved from node a for its maintenance: fan"
    assert (status.phase, status.moves, status.preemptions, status.restarts) == ("Pending", 1, 0, 0)
    events = [notice.reason for notice in notices(build.admitted(), status)]
    assert events == ["Moved"]


def test_an_expired_move_is_ignored(build):
    assert moved(build, now=60).status.moves == 0


def test_a_succeeded_job_is_not_moved(build):
    status = moved(build, pods=(build.pod(phase="Succeeded", exit_code=0),)).status
    assert (status.phase, status.moves, status.preemption) == ("Succeeded", 0, None)


def test_a_moved_job_requests_its_places_when_its_pods_are_gone(build):
    ended = build.after(build.admitted(), moved(build))
    remaining = decide(build.see(ended, pods=(build.pod(deleted=6),), now=6))
    assert remaining.actions == ()
    assert remaining.status.preemption is not None
    assert decide(build.see(ended, now=7)).actions == (RequestPlan(2),)
    planned = decide(build.see(ended, answer=Plan(build.placement("b"), 9), now=7)).status
    assert (planned.attempt, planned.preemption, planned.moves) == (2, None, 1)


def test_a_move_is_new_once_and_lasts_until_it_is_withdrawn(build):
    known = Preemptions()
    job = named(build, "train", uid=build.UID)
    known.record(job, gone=False)
    assert known.replace_orders((), (), (order(build),)) == (Key("team", "train"),)
    assert known.replace_orders((), (), (order(build),)) == ()
    known.replace_orders(())
    assert known.move_of(job, 1) is None


def test_a_status_with_a_consolidation_ends_no_victim(build):
    """It ends when the extender orders the move."""
    known = Preemptions()
    victim = named(build, "victim")
    known.record(victim, gone=False)
    victims = preemption(build, "uid-victim/1", reason="Consolidation")
    assert known.record(named(build, "large", preemption=victims), gone=False) == ()
    assert known.preemption_of(victim, 1) is None


def test_the_message_of_a_job_moved_for_another_names_the_other(build):
    own = preemption(build, f"{build.UID}/1", reason="Consolidation")
    by = AttemptMove("a", "large", build.at(60), own)
    seen = build.see(build.admitted(), jobs=(build.job(),), pods=(build.pod(),), now=5)
    status = decide(dataclasses.replace(seen, move=by)).status
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Moved", "Consolidation")
    assert attempt.message == "moved from node a to free GPUs for large there"
    assert (status.moves, status.preemptions, status.restarts) == (1, 0, 0)


def test_the_event_of_a_consolidation_names_costs_and_gains(build):
    consolidation = structs.replace(
        preemption(build, "uid-one/1", "uid-two/1", reason="Consolidation"),
        lost_gpu_seconds=720,
        gained_gpu_seconds=14400,
    )
    waits = PlanPending(
        "PreemptionPending", "preempting 1 job", preemption=consolidation, seconds=10
    )
    job = build.gpujob()
    found = notices(job, decide(build.see(job, answer=waits)).status)
    (notice,) = [each for each in found if each.reason == "Consolidating"]
    assert notice.note == (
        "2 other jobs are moved to free GPUs for it, which costs at most 0.20 GPU-hours and "
        "gains 4.00"
    )


def test_extra_workers_are_preempted_without_ending_the_attempt(build):
    known, job = Preemptions(), build.gpujob(workers=4, minWorkers=2)
    known.record(job, gone=False)
    names = tuple(f"{build.UID}/1+{number}" for number in (1, 2))
    stopped = preemption(build, names[1], reason="ElasticScaleDown")
    urgent = named(build, "urgent", preemption=stopped)
    assert known.record(urgent, gone=False) == (Key("team", "train"),)
    drained = Drained(attempt=names[0], node="a", cause="fan")
    assert known.replace_orders((), (drained,)) == (Key("team", "train"),)
    found = known.extra_preemptions(job, 1)
    assert {index: by.preemptor for index, by in found.items()} == {
        2: ("", "a"),
        3: ("team", "urgent"),
    }
    assert (known.preemption_of(job, 1), known.extra_preemptions(job, 2)) == (None, {})


def test_an_attempt_that_may_grow_is_queued_once(build):
    known, job = Preemptions(), build.gpujob(workers=4, minWorkers=2)
    known.record(job, gone=False)
    assert known.replace_orders((), (), (), (f"{build.UID}/1",)) == (Key("team", "train"),)
    assert known.replace_orders((), (), (), (f"{build.UID}/1",)) == ()
    assert (known.may_grow(job, 1), known.may_grow(job, 2)) == (True, False)
    known.replace_orders(())
    assert not known.may_grow(job, 1)


def test_the_event_of_a_preemptor_counts_jobs_and_workers(build):
    job = build.gpujob()
    preempted = preemption(build, "v/1", "w/1+1", "w/1+2")
    (notice,) = notices(job, structs.replace(job.status, preemption=preempted))
    assert notice.note.startswith("1 other job and 2 workers of elastic gangs are preempted")
