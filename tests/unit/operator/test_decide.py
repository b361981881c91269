# SPDX-License-Identifier: Apache-2.0
import dataclasses

from msgspec import structs

from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    CreateChildren,
    CreationFailure,
    DeleteJob,
    NoPlan,
    Plan,
    RequestPlan,
    SetDeadline,
)
from gpupack_operator.decision.reasons import JobReason


def test_a_new_job_is_planned_before_anything_is_written(build):
    job = build.gpujob()
    decision = decide(build.see(job))
    assert decision.actions == (RequestPlan(attempt=1),)
    assert decision.status == job.status


def test_a_planned_job_is_admitted_in_one_write_and_then_created(build):
    decision = decide(build.see(build.gpujob(workers=2), answer=Plan(build.placement("a", "b"), 9)))
    assert decision.status.phase == "Admitted"
    assert (decision.status.attempt, decision.status.nodes, decision.status.gpus) == (1, "a,b", "2")
    assert decision.status.holds_placement
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=None),)


def test_the_message_of_a_job_with_shares_names_the_shares(build):
    job = build.gpujob(share={"percent": 40, "memory": "1Gi"}, workers=2)
    status = decide(build.see(job, answer=Plan(build.placement("a", "a"), 9))).status
    assert (status.gpus, status.message) == (
        "2x40%",
        "attempt 1 has 2x40% of a GPU on a",
    )


def test_a_job_with_devices_of_another_plugin_holds_its_nodes(build):
    job = build.gpujob(gpus=2, resourceName="nvidia.com/gpu")
    places = tuple(structs.replace(place, gpus=()) for place in build.placement("a"))
    status = decide(build.see(job, answer=Plan(places, 9))).status
    assert (status.holds_placement, status.nodes, status.gpus) == (True, "a", "2")


def test_a_refused_job_waits_with_the_reason_of_the_extender(build):
    refusal = NoPlan(reason="TooFewFreeGpus", message="2 nodes: fewer than 1 free GPU")
    decision = decide(build.see(build.gpujob(), answer=refusal, request_failures=1))
    assert (decision.status.phase, decision.status.reason) == ("Pending", "TooFewFreeGpus")
    assert decision.status.message == refusal.message
    assert decision.again_at == build.at(10.5)


def test_a_job_refused_again_for_the_same_reason_is_not_rewritten(build):
    refusal = NoPlan(reason="TooFewFreeGpus", message="2 nodes: fewer than 1 free GPU")
    first = decide(build.see(build.gpujob(), answer=refusal, now=10))
    second = decide(build.see(build.after(build.gpujob(), first), answer=refusal, now=99))
    assert second.status == first.status


def test_the_interval_between_requests_grows_with_consecutive_refusals(build):
    refusal = NoPlan(reason="TooFewFreeGpus", message="full")
    waits = [
        decide(build.see(build.gpujob(), answer=refusal, now=0, request_failures=n)).again_at
        for n in (1, 2, 3, 9, 100)
    ]
    assert waits == [build.at(0.5), build.at(1), build.at(2), build.at(15), build.at(15)]


def test_a_restarted_operator_creates_the_missing_job_of_an_admitted_gpujob(build):
    decision = decide(build.see(build.admitted()))
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=None),)


def test_pods_without_a_job_are_ignored_and_must_end_before_the_job_is_created(build):
    orphan = build.pod(phase="Failed", exit_code=3, ended=9)
    assert decide(build.see(build.admitted(), pods=[orphan])).status.phase == "Admitted"
    decision = decide(build.see(build.admitted(), pods=[build.pod()]))
    assert (decision.actions, decision.again_at) == ((), build.at(15))


def test_a_job_runs_when_all_workers_have_started(build):
    job = build.admitted(nodes=("a", "b"))
    one = decide(
        build.see(job, jobs=[build.job()], pods=[build.pod(0), build.pod(1, phase="Pending")])
    )
    both = decide(build.see(job, jobs=[build.job()], pods=[build.pod(0), build.pod(1)]))
    assert (one.status.phase, both.status.phase) == ("Admitted", "Running")


def test_a_worker_that_its_kubelet_rejected_has_not_started(build):
    rejected = build.pod(1, phase="Failed", reason="UnexpectedAdmissionError", bound=10)
    pods = [build.pod(0), rejected]
    seen = build.see(build.admitted(nodes=("a", "b")), jobs=[build.job()], pods=pods)
    assert decide(seen).status.phase != "Running"


def test_a_complete_job_has_succeeded_with_the_headline_of_worker_0(build):
    text = '{"schema":"gpupack.dev/result/v1","headline":"9 TFLOP/s"}'
    pods = [build.pod(0, phase="Succeeded", exit_code=0, message=text, ended=9)]
    decision = decide(
        build.see(build.admitted(), jobs=[build.job(conditions=[("Complete", 9)])], pods=pods)
    )
    assert (decision.status.phase, decision.status.headline) == ("Succeeded", "9 TFLOP/s")
    assert decision.status.attempts[-1].outcome == "Succeeded"
    assert decision.actions == ()


def test_a_succeeded_job_keeps_its_placement_in_the_status(build):
    pods = [build.pod(phase="Succeeded", exit_code=0, ended=9)]
    jobs = [build.job(conditions=[("Complete", 9)])]
    decision = decide(build.see(build.admitted(), jobs=jobs, pods=pods))
    assert decision.status.placement[0].node == "a"
    assert not decision.status.holds_placement


def test_a_complete_job_without_pods_restarts_after_a_short_delay_for_events(build):
    jobs = [build.job(conditions=[("Complete", 9)])]
    early = decide(build.see(build.admitted(), jobs=jobs, now=10))
    late = decide(build.see(build.admitted(), jobs=jobs, now=12))
    assert (early.status.phase, early.again_at) == ("Admitted", build.at(12))
    ended = late.status.attempts[-1]
    assert (ended.outcome, ended.reason) == ("Infrastructure", "PodLost")
    assert late.status.phase == "Pending"


def test_a_drained_worker_that_exits_0_is_restarted_and_leaves_no_result(build):
    message = '{"schema": "gpupack.dev/result/v1", "headline": "half of it"}'
    drained = build.pod(
        phase="Succeeded",
        exit_code=0,
        ended=9,
        message=message,
        deleted=8,
        disrupted=(8, "EvictionByEvictionAPI"),
    )
    jobs = [build.job(conditions=[("Complete", 9)])]
    status = decide(build.see(build.admitted(), jobs=jobs, pods=[drained], now=30)).status
    ended = status.attempts[-1]
    assert (ended.outcome, ended.reason) == ("Infrastructure", "EvictionByEvictionAPI")
    assert "exit code 0 after that is no success" in ended.message
    assert (status.phase, status.results, status.headline) == ("Pending", (), "")
    assert status.restarts == 0


def test_a_job_that_exits_0_at_its_deadline_while_the_operator_is_down_fails(build):
    message = '{"schema": "gpupack.dev/result/v1", "headline": "half of it"}'
    ended = build.pod(phase="Succeeded", exit_code=0, ended=21, message=message, deleted=21)
    jobs = [build.job(conditions=[("Failed", 22)], deadline=21)]
    job = build.admitted(activeDeadlineSeconds=20)
    status = decide(build.see(job, jobs=jobs, pods=[ended], now=90)).status
    assert (status.phase, status.reason) == ("Failed", "DeadlineExceeded")
    assert status.results == ()


def test_a_failed_worker_fails_a_job_without_restarts(build):
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    decision = decide(build.see(build.admitted(), jobs=[build.job()], pods=pods))
    assert (decision.status.phase, decision.status.reason) == ("Failed", JobReason.WORKER_FAILED)
    assert "exit code 3" in decision.status.message


def test_a_failed_worker_restarts_a_job_that_has_restarts_left(build):
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    job = build.admitted(maxRestarts=1)
    decision = decide(build.see(job, jobs=[build.job()], pods=pods))
    assert (decision.status.phase, decision.status.restarts) == ("Pending", 1)
    assert not decision.status.placement
    assert decision.actions == ()
    assert f"the next one starts at {build.stamp(11)} or later" in decision.status.message


def test_the_next_attempt_waits_until_no_pod_of_the_last_one_can_run(build):
    job = _restarting(build)
    pods = [build.pod(deleted=10)]
    assert decide(build.see(job, pods=pods, now=35)).actions == ()
    assert decide(build.see(job, now=35)).actions == (RequestPlan(attempt=2, avoid=("a",)),)


def test_a_job_does_not_wait_for_a_deleted_pod_on_a_silent_node(build):
    """Not even for its grace period: the node does not know of the deletion."""
    job = _restarting(build)
    pods = [build.pod(deleted=10)]
    assert decide(build.see(job, pods=pods, now=15)).actions == ()
    assert decide(build.see(job, pods=pods, now=15, silent_nodes={"b"})).actions == ()
    assert decide(build.see(job, pods=pods, now=15, silent_nodes={"a"})).actions == (
        RequestPlan(attempt=2, avoid=("a",)),
    )


def test_a_job_waits_for_a_deleted_pod_while_its_node_is_alive(build):
    decision = decide(build.see(_restarting(build), pods=[build.pod(deleted=10)], now=999))
    assert (decision.actions, decision.status.reason) == ((), JobReason.WORKERS_TERMINATING)
    assert "node a does not end it" in decision.status.message


def test_the_message_about_terminating_workers_is_removed_when_they_are_gone(build):
    job = _restarting(build)
    job = build.after(job, decide(build.see(job, pods=[build.pod(deleted=10)], now=60)))
    going = build.job(deleted=10)
    assert decide(build.see(job, jobs=[going], now=61)).status.reason == JobReason.RESTARTING


def test_a_job_does_not_wait_for_a_deleted_pod_that_was_never_bound(build):
    pods = [build.pod(deleted=10, node="")]
    assert decide(build.see(_restarting(build), pods=pods, now=50)).actions == (
        RequestPlan(attempt=2, avoid=("a",)),
    )


def test_a_restarted_operator_deletes_the_job_of_an_ended_attempt(build):
    decision = decide(build.see(_lost(build), jobs=[build.job()], now=60))
    assert decision.actions == (DeleteJob(name="train-1", uid="uid-of-train-1", attempt=1),)


def test_the_node_of_a_failed_worker_is_recorded_and_avoided(build):
    lost = _lost(build)
    fault = lost.status.attempts[0].fault
    assert (fault.worker, fault.node, fault.devices) == (0, "a", "GPU-1")
    assert decide(build.see(lost, now=60)).actions == (RequestPlan(attempt=2, avoid=("a",)),)
    assert decide(build.see(lost, now=700)).actions == (RequestPlan(attempt=2),)


def test_a_suspended_job_releases_its_places_and_is_not_planned(build):
    job = build.admitted()
    job = structs.replace(job, spec=structs.replace(job.spec, suspend=True))
    decision = decide(build.see(job, jobs=[build.job()], pods=[build.pod()]))
    assert (decision.status.phase, decision.status.placement) == ("Suspended", ())
    assert decision.status.attempts[-1].outcome == "Suspended"
    assert decide(build.see(build.after(job, decision), now=60)).actions == ()


def test_a_resumed_job_starts_at_once_and_counts_no_restart(build):
    running = build.admitted()
    suspended = structs.replace(running, spec=structs.replace(running.spec, suspend=True))
    decision = decide(build.see(suspended, jobs=[build.job()], pods=[build.pod()]))
    resumed = build.after(running, decision)
    resumed = build.after(resumed, decide(build.see(resumed, now=10)))
    assert decide(build.see(resumed, now=10)).actions == (RequestPlan(attempt=2),)
    assert decision.status.restarts == 0


def test_a_job_that_is_being_deleted_is_left_to_garbage_collection(build):
    job = build.gpujob(deleted=5)
    decision = decide(build.see(job, jobs=[build.job()], pods=[build.pod()]))
    assert (decision.status, decision.actions) == (job.status, ())


def test_a_template_that_the_api_refuses_fails_the_job_with_its_message(build):
    refused = CreationFailure(
        reason=JobReason.INVALID_TEMPLATE, message="spec.x: wrong", permanent=True
    )
    decision = decide(build.see(build.admitted(maxRestarts=9), answer=refused))
    assert (decision.status.phase, decision.status.message) == ("Failed", "spec.x: wrong")


def test_a_name_conflict_is_retried_without_counting_a_restart(build):
    taken = CreationFailure(
        reason=JobReason.NAME_CONFLICT, message="Service train exists", permanent=False
    )
    decision = decide(build.see(build.admitted(), answer=taken))
    assert (decision.status.phase, decision.status.restarts) == ("Pending", 0)
    assert "Service train exists" in decision.status.message


def test_a_created_job_gets_the_remaining_time_of_the_deadline(build):
    job = build.admitted(activeDeadlineSeconds=100)
    decision = decide(build.see(job, now=40))
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=61),)


def test_an_edited_deadline_is_passed_on_to_the_running_job(build):
    job = build.admitted(activeDeadlineSeconds=500)
    decision = decide(build.see(job, jobs=[build.job(deadline=100)], pods=[build.pod()]))
    assert decision.actions == (SetDeadline(name="train-1", seconds=501),)


def test_the_running_condition_explains_why_an_admitted_job_does_not_run(build):
    pods = [build.pod(phase="Pending", waiting="ImagePullBackOff")]
    decision = decide(build.see(build.admitted(), jobs=[build.job()], pods=pods))
    assert (decision.status.phase, decision.status.reason) == (
        "Admitted",
        JobReason.IMAGE_PULL_FAILED,
    )
    assert "ImagePullBackOff" in decision.status.message
    assert decision.status.message.endswith(
        f"its GPUs are held until {build.stamp(121)}, by attempt 1 of 8 that may wait for the "
        "image; then they are released, and the job is retried later"
    )


def test_the_condition_names_the_missing_secret_if_a_registry_refuses_an_image(build):
    refused = "failed to pull: 401 Unauthorized"
    pods = [build.pod(phase="Pending", waiting="ImagePullBackOff", said=refused)]
    seen = build.see(build.admitted(), jobs=[build.job()], pods=pods)
    decision = decide(dataclasses.replace(seen, pull_secrets=("ours",)))
    assert "Secret ours of namespace team; check that it exists" in decision.status.message


def _restarting(build, **spec):
    """A job whose first attempt ended at second 10."""
    job = build.admitted(maxRestarts=1, **spec)
    pods = [build.pod(phase="Failed", exit_code=3, ended=9)]
    return build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))


def _lost(build):
    """A job whose first attempt was lost with its node at second 10."""
    job = build.admitted()
    pods = [build.pod(disrupted=(8, "DeletionByTaintManager"), deleted=8)]
    return build.after(job, decide(build.see(job, jobs=[build.job()], pods=pods)))
