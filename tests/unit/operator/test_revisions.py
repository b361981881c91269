# SPDX-License-Identifier: Apache-2.0
"""A higher revision restarts a job on the same GPUs."""

import dataclasses

from msgspec import structs

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    AttemptPreemption,
    CreateChildren,
    Plan,
    PlanPending,
    RequestPlan,
)
from gpupack_operator.decision.notices import notices


def with_revision(job, revision):
    return structs.replace(job, spec=structs.replace(job.spec, revision=revision))


def running(build, **spec):
    return build.see(
        with_revision(build.admitted(**spec), 1), jobs=[build.job()], pods=[build.pod()]
    )


def test_a_higher_revision_ends_the_attempt_and_reserves_its_places(build):
    seen = running(build)
    status = decide(seen).status
    attempt = status.attempts[-1]
    assert (attempt.outcome, attempt.reason) == ("Revised", "Revised")
    assert attempt.message == "stopped by revision 1 of the job"
    assert (status.phase, status.placement) == ("Pending", ())
    assert (status.restarts, status.moves, status.preemptions) == (0, 0, 0)
    assert status.preemption.placement == seen.job.status.placement
    (victims,) = status.preemption.victims
    assert (victims.reason, victims.attempts) == ("Revised", (f"{seen.job.metadata.uid}/1",))


def test_the_job_restarts_with_the_revision_without_counting_a_restart(build):
    seen = running(build)
    ended = build.after(seen.job, decide(seen))
    assert decide(build.see(ended)).actions == (RequestPlan(attempt=2),)
    planned = decide(build.see(ended, answer=Plan(build.placement("a"), 9)))
    status = planned.status
    assert (status.attempt, status.revision, status.preemption) == (2, 1, None)
    again = decide(build.see(build.after(ended, planned)))
    assert again.actions == (CreateChildren(attempt=2, deadline_seconds=None),)


def test_the_reservation_stays_while_the_queue_decides_nothing(build):
    ended = build.after(running(build).job, decide(running(build)))
    outside = PlanPending(
        "QueueFull", "its namespace has more in the queue than it may", queued=False
    )
    assert decide(build.see(ended, answer=outside)).status.preemption == ended.status.preemption
    inside = PlanPending("TooFewFreeGpus", "no room")
    assert decide(build.see(ended, answer=inside)).status.preemption is None


def test_a_new_job_starts_with_its_revision(build):
    job = with_revision(build.gpujob(), 7)
    planned = decide(build.see(job, answer=Plan(build.placement("a"), 9)))
    assert planned.status.revision == 7
    begun = build.after(job, planned)
    assert decide(build.see(begun)).status.phase == "Admitted"


def test_a_preempted_job_keeps_no_places_for_a_revision(build):
    seen = dataclasses.replace(running(build), preemption=AttemptPreemption("Priority", ("x", "y")))
    status = decide(seen).status
    assert (status.attempts[-1].outcome, status.preemption) == ("Preempted", None)


def test_a_suspended_job_keeps_no_places_for_a_revision(build):
    seen = running(build, suspend=True)
    status = decide(seen).status
    assert (status.phase, status.preemption) == ("Suspended", None)


def test_a_succeeded_job_is_not_restarted_for_a_revision(build):
    seen = dataclasses.replace(running(build), pods=(build.pod(phase="Succeeded", exit_code=0),))
    assert decide(seen).status.phase == "Succeeded"


def test_a_revision_reserves_no_places_of_extra_workers(build):
    job = with_revision(build.admitted(nodes=("a", "b"), minWorkers=1), 1)
    pods = [build.pod(0, node="a"), build.pod(1, node="b")]
    status = decide(build.see(job, jobs=[build.job()], pods=pods)).status
    assert [each.node for each in status.preemption.placement] == ["a"]


def again(build, started, now):
    """Observe a job that was revised once and is revised again."""
    first = running(build, maxRestarts=1)
    ended = build.after(first.job, decide(first))
    planned = decide(build.see(ended, answer=Plan(build.placement("a"), 9), now=started))
    job = with_revision(build.after(ended, planned), 2)
    return build.see(job, jobs=[build.job(attempt=2)], pods=[build.pod(attempt=2)], now=now)


def test_the_next_revision_stops_an_attempt_after_a_minute(build):
    early = decide(again(build, started=10, now=30))
    assert early.status.attempt == 2
    assert early.status.attempts[-1].outcome is None
    assert early.again_at == build.at(70)
    late = decide(again(build, started=10, now=70))
    assert late.status.attempts[-1].outcome == "Revised"


def test_the_status_records_since_when_the_job_holds_its_gpus_over_all_revisions(build):
    first = running(build, maxRestarts=1)
    begun = first.job.status.attempts[0].started_at
    assert decide(first).status.held_since == begun
    second = again(build, started=10, now=70)
    assert second.job.status.held_since == begun
    assert decide(second).status.held_since == begun
    failed = build.pod(attempt=2, phase="Failed", exit_code=3, ended=60)
    lost = dataclasses.replace(second, pods=(failed,))
    assert decide(lost).status.held_since is None


def test_no_places_are_reserved_if_another_plugin_chose_the_devices(build):
    seen = running(build, resourceName="nvidia.com/gpu")
    places = tuple(structs.replace(place, gpus=()) for place in seen.job.status.placement)
    job = structs.replace(seen.job, status=structs.replace(seen.job.status, placement=places))
    pod = build.pod(limits={"nvidia.com/gpu": "1"})
    status = decide(dataclasses.replace(seen, job=job, pods=(pod,))).status
    assert (status.attempts[-1].outcome, status.preemption) == ("Revised", None)


def test_a_revision_causes_its_own_event_and_none_of_a_preemption(build):
    seen = running(build)
    before = with_revision(build.admitted(), 0)
    found = notices(before, decide(seen).status)
    assert [(each.type, each.reason) for each in found] == [("Normal", "Revised")]
    assert "it restarts with that revision" in found[0].note
