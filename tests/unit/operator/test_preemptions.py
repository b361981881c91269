# SPDX-License-Identifier: Apache-2.0
"""An attempt that ends for another job, and the job that it ends for."""

import dataclasses

import msgspec
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, Preemption, Victims
from gpupack_crds.plan import Drained, MoveOrder, Stop
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    AskPlan,
    DeleteJob,
    Moved,
    NotPlanned,
    Planned,
    Preempted,
    Waits,
)
from gpupack_operator.decision.notices import notices
from gpupack_operator.plan_line import Key
from gpupack_operator.preemptions import Preemptions


def preemption(build, *attempts, reason="InCohortReclamation"):
    victims = (Victims(reason=reason, attempts=attempts),)
    return Preemption(since=build.stamp(0), victims=victims, placement=build.placement("a"))


def named(build, name, *, uid=None, namespace="team", **status):
    job = build.gpujob(status=GpuJobStatus(**status))
    meta = structs.replace(job.metadata, name=name, namespace=namespace, uid=uid or f"uid-{name}")
    return structs.replace(job, metadata=meta)


@pytest.fixture
def stopped(build):
    """A job that runs and is to end for `urgent`."""

    def look(namespace="team", **observed):
        job = build.admitted()
        by = Preempted(reason="InCohortReclamation", beneficiary=(namespace, "urgent"))
        seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),), **observed)
        return decide(dataclasses.replace(seen, preempted=by))

    return look


def test_a_victim_s_job_is_deleted_and_the_attempt_counts_as_no_restart(stopped):
    decision = stopped()
    status = decision.status
    assert [type(action) for action in decision.actions] == [DeleteJob]
    assert (status.phase, status.restarts, status.preemptions) == ("Pending", 0, 1)
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Preempted", "InCohortReclamation")
    assert attempt.message == "stopped for GPUJob urgent, which reclaims its nominal quota"


def test_a_victim_is_not_told_the_names_of_another_namespace(stopped):
    (attempt,) = stopped("other").status.attempts
    assert attempt.message.startswith("stopped for a job of another namespace, ")


def test_a_victim_that_has_succeeded_by_then_has_succeeded(build):
    by = Preempted(reason="Priority", beneficiary=("team", "urgent"))
    seen = build.see(
        build.admitted(), jobs=(build.job(),), pods=(build.pod(phase="Succeeded", exit_code=0),)
    )
    decision = decide(dataclasses.replace(seen, preempted=by))
    assert (decision.status.phase, decision.status.preemptions) == ("Succeeded", 0)


def test_who_is_stopped_is_written_with_the_reason_and_at_once(build):
    job = build.gpujob()
    waits = Waits("DoesNotFit", "full")
    told = build.after(job, decide(build.see(job, answer=waits, now=10, asked_until=build.at(25))))
    found = preemption(build, "uid-v/1")
    answer = Waits("DoesNotFit", "full, still", preemption=found, seconds=9)
    decision = decide(build.see(told, answer=answer, now=11, told=10, asked_until=build.at(25)))
    assert decision.status.preemption == found
    events = [notice.reason for notice in notices(told, decision.status)]
    assert "Preempting" in events


@pytest.mark.parametrize("ending", ["admitted", "given up", "suspended"])
def test_nobody_is_stopped_any_longer_for_who_does_not_wait_for_it(build, ending):
    waiting = GpuJobStatus(preemption=preemption(build, "uid-v/1"))
    job = build.gpujob(status=waiting, suspend=ending == "suspended")
    answers = {
        "admitted": Planned(build.placement("a"), 9),
        "given up": Waits("DoesNotFit", "full"),
    }
    answer = answers.get(ending)
    status = decide(build.see(job, answer=answer, asked_until=build.at(25))).status
    assert status.preemption is None


def test_a_question_without_an_answer_says_nothing_about_who_is_stopped(build):
    found = preemption(build, "uid-v/1")
    job = build.gpujob(status=GpuJobStatus(preemption=found))
    answer = NotPlanned("SchedulerUnavailable", "no answer")
    assert decide(build.see(job, answer=answer)).status.preemption == found
    assert decide(build.see(job)).actions == (AskPlan(1),)


def test_victims_are_found_by_uid_and_attempt(build):
    known = Preemptions()
    victim = named(build, "victim", namespace="other")
    assert known.saw(victim, gone=False) == ()
    first = named(build, "urgent", preemption=preemption(build, "uid-victim/1"))
    assert known.saw(first, gone=False) == (Key("other", "victim"),)
    assert known.saw(first, gone=False) == ()
    assert known.of(victim, 1).beneficiary == ("team", "urgent")
    assert known.of(victim, 2) is None


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "admitted"])
def test_a_beneficiary_that_waits_no_longer_stops_nobody(build, gone):
    known = Preemptions()
    victim = named(build, "victim")
    known.saw(victim, gone=False)
    waits = {"preemption": preemption(build, "uid-victim/1")}
    known.saw(named(build, "urgent", **waits), gone=False)
    known.saw(named(build, "urgent", phase="Admitted", **waits), gone=gone)
    assert known.of(victim, 1) is None


@pytest.mark.parametrize("leaves", ["deleted", "suspended"])
def test_who_does_not_want_to_run_any_more_stops_nobody(build, leaves):
    known = Preemptions()
    victim = named(build, "victim")
    known.saw(victim, gone=False)
    urgent = named(build, "urgent", preemption=preemption(build, "uid-victim/1"))
    if leaves == "deleted":
        meta = structs.replace(urgent.metadata, deletion_timestamp=build.at(0))
        urgent = structs.replace(urgent, metadata=meta)
    else:
        urgent = structs.replace(urgent, spec=structs.replace(urgent.spec, suspend=True))
    assert known.saw(urgent, gone=False) == ()
    assert known.of(victim, 1) is None


def test_who_is_stopped_for_two_ends_while_one_of_them_waits(build):
    known = Preemptions()
    victim = named(build, "victim")
    for name in ("first", "second"):
        waits = {"preemption": preemption(build, "uid-victim/1")}
        known.saw(named(build, name, **waits), gone=False)
    known.saw(named(build, "first"), gone=True)
    assert known.of(victim, 1).beneficiary == ("team", "second")


def test_the_largest_preemption_is_read_back_as_it_was_written(build):
    found = preemption(build, *(f"uid-{number}/1" for number in range(4096)))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Preemption) == found


def test_an_attempt_that_ends_for_a_pod_is_told_its_name(build):
    known = Preemptions()
    job = named(build, "victim", uid="uid-v")
    known.saw(job, gone=False)
    stop = Stop(attempt="uid-v/1", reason="InCohortFairSharing", namespace="team", pod="notebook")
    assert known.told((stop,)) == (Key("team", "victim"),)
    assert known.told((stop,)) == ()
    by = known.of(job, 1)
    assert (by.kind, by.beneficiary) == ("pod", ("team", "notebook"))
    known.told(())
    assert known.of(job, 1) is None


def test_a_victim_of_a_pod_says_for_whom_it_was_stopped(build):
    job = build.admitted()
    by = Preempted(reason="Priority", beneficiary=("team", "notebook"), kind="pod")
    seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),))
    (attempt,) = decide(dataclasses.replace(seen, preempted=by)).status.attempts
    assert attempt.message == "stopped for pod notebook, which has a higher priority"


def test_an_attempt_on_gpus_in_maintenance_is_told_once_and_until_that_is_over(build):
    known = Preemptions()
    job = named(build, "victim", uid="uid-v")
    known.saw(job, gone=False)
    drained = Drained(attempt="uid-v/1", node="a", cause="fan")
    assert known.told((), (drained,)) == (Key("team", "victim"),)
    assert known.told((), (drained,)) == ()
    assert known.of(job, 1).why == "fan"
    known.told(())
    assert known.of(job, 1) is None


def test_an_attempt_whose_gpu_failed_starts_elsewhere_and_names_node_and_gpu(build):
    by = Preempted(reason="GpuFailed", beneficiary=("", "a"), kind="node", why="GPU-1: XID 79")
    seen = build.see(build.admitted(), jobs=(build.job(),), pods=(build.pod(),))
    decision = decide(dataclasses.replace(seen, preempted=by))
    assert [type(action) for action in decision.actions] == [DeleteJob]
    (attempt,) = decision.status.attempts
    assert (attempt.outcome, attempt.reason) == ("Infrastructure", "GpuFailed")
    assert attempt.message == "a GPU of node a failed, GPU-1: XID 79"
    assert (attempt.fault.node, attempt.fault.devices) == ("a", "GPU-1")
    assert (decision.status.restarts, decision.status.preemptions) == (0, 0)


def test_a_job_that_is_drained_says_of_which_node_and_why(build):
    job = build.admitted()
    by = Preempted(reason="Maintenance", beneficiary=("", "a"), kind="node", why="fan is broken")
    seen = build.see(job, jobs=(build.job(),), pods=(build.pod(),))
    status = decide(dataclasses.replace(seen, preempted=by)).status
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
    """A job that runs and is to go on elsewhere."""
    known = Preemptions()
    job = build.admitted()
    known.saw(job, gone=False)
    known.told((), (), (order(build, until),))
    seen = build.see(job, jobs=(build.job(),), now=now, **{"pods": (build.pod(),)} | observed)
    return decide(dataclasses.replace(seen, moved=known.move_of(job, 1)))


def test_in_one_write_an_attempt_ends_and_the_status_says_where_it_goes_on(build):
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


def test_an_order_to_move_that_comes_too_late_moves_nobody(build):
    assert moved(build, now=60).status.moves == 0


def test_who_has_succeeded_by_then_is_not_moved(build):
    status = moved(build, pods=(build.pod(phase="Succeeded", exit_code=0),)).status
    assert (status.phase, status.moves, status.preemption) == ("Succeeded", 0, None)


def test_who_was_moved_asks_for_its_places_when_its_pods_are_gone_and_says_so_until_then(build):
    ended = build.after(build.admitted(), moved(build))
    remaining = decide(build.see(ended, pods=(build.pod(deleted=6),), now=6))
    assert remaining.actions == ()
    assert remaining.status.preemption is not None
    assert decide(build.see(ended, now=7)).actions == (AskPlan(2),)
    planned = decide(build.see(ended, answer=Planned(build.placement("b"), 9), now=7)).status
    assert (planned.attempt, planned.preemption, planned.moves) == (2, None, 1)


def test_a_move_is_told_once_and_until_it_is_over(build):
    known = Preemptions()
    job = named(build, "train", uid=build.UID)
    known.saw(job, gone=False)
    assert known.told((), (), (order(build),)) == (Key("team", "train"),)
    assert known.told((), (), (order(build),)) == ()
    known.told(())
    assert known.move_of(job, 1) is None


def test_who_is_to_be_moved_for_a_job_does_not_end_by_its_status(build):
    """It ends by the order that says where it goes on."""
    known = Preemptions()
    victim = named(build, "victim")
    known.saw(victim, gone=False)
    told = preemption(build, "uid-victim/1", reason="Consolidation")
    assert known.saw(named(build, "large", preemption=told), gone=False) == ()
    assert known.of(victim, 1) is None


def test_who_is_moved_so_that_another_has_room_says_so(build):
    own = preemption(build, f"{build.UID}/1", reason="Consolidation")
    by = Moved("a", "large", build.at(60), own)
    seen = build.see(build.admitted(), jobs=(build.job(),), pods=(build.pod(),), now=5)
    status = decide(dataclasses.replace(seen, moved=by)).status
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.reason) == ("Moved", "Consolidation")
    assert attempt.message == "moved from node a so that large has room there"
    assert (status.moves, status.preemptions, status.restarts) == (1, 0, 0)


def test_for_whom_others_are_moved_an_event_says_what_it_costs_and_gains(build):
    told = structs.replace(
        preemption(build, "uid-one/1", "uid-two/1", reason="Consolidation"),
        lost_gpu_seconds=720,
        gained_gpu_seconds=14400,
    )
    waits = Waits("PreemptionPending", "preempting 1 job", preemption=told, seconds=10)
    job = build.gpujob()
    told_of = notices(job, decide(build.see(job, answer=waits)).status)
    (notice,) = [each for each in told_of if each.reason == "Consolidating"]
    assert notice.note == (
        "2 other jobs are moved so that it has room, which costs 0.20 GPU-hours at the most, and "
        "gains 4.00"
    )


def test_workers_beyond_the_least_end_by_themselves_and_their_attempt_goes_on(build):
    known, job = Preemptions(), build.gpujob(workers=4, minWorkers=2)
    known.saw(job, gone=False)
    names = tuple(f"{build.UID}/1+{number}" for number in (1, 2))
    stopped = preemption(build, names[1], reason="ElasticScaleDown")
    urgent = named(build, "urgent", preemption=stopped)
    assert known.saw(urgent, gone=False) == (Key("team", "train"),)
    drained = Drained(attempt=names[0], node="a", cause="fan")
    assert known.told((), (drained,)) == (Key("team", "train"),)
    found = known.shrinks(job, 1)
    assert {index: by.beneficiary for index, by in found.items()} == {
        2: ("", "a"),
        3: ("team", "urgent"),
    }
    assert (known.of(job, 1), known.shrinks(job, 2)) == (None, {})


def test_an_attempt_that_may_grow_is_looked_at_once_and_until_it_has(build):
    known, job = Preemptions(), build.gpujob(workers=4, minWorkers=2)
    known.saw(job, gone=False)
    assert known.told((), (), (), (f"{build.UID}/1",)) == (Key("team", "train"),)
    assert known.told((), (), (), (f"{build.UID}/1",)) == ()
    assert (known.grows(job, 1), known.grows(job, 2)) == (True, False)
    known.told(())
    assert not known.grows(job, 1)


def test_the_beneficiary_s_event_tells_jobs_from_workers(build):
    job = build.gpujob()
    told = preemption(build, "v/1", "w/1+1", "w/1+2")
    (notice,) = notices(job, structs.replace(job.status, preemption=told))
    assert notice.note.startswith("1 other job and 2 workers of elastic gangs are preempted")
