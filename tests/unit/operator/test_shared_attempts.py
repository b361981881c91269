# SPDX-License-Identifier: Apache-2.0
"""An attempt whose workers share pods: 0 and 1 on node a, 2 on node b."""

import msgspec
import pytest
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import PlannedPod
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    CreateChildren,
    CreationFailure,
    DeleteJob,
    EndPod,
    LogSource,
    SetDeadline,
    StopJob,
)
from gpupack_operator.decision.reasons import JobReason

IGNORE_6 = [{"exitCodes": [6], "action": "Ignore"}]
NODES = ("a", "a", "b")
PODS = {0: (0, 1), 2: (2,)}
RESULT = '{"schema": "gpupack.dev/result/v1", "headline": "worker %d"}'


def job_of(build, index, **changes):
    """The Job of the pod whose first worker is `index`."""
    found = msgspec.to_builtins(build.job(**changes))
    found["metadata"] |= {"name": f"train-1-p{index}", "uid": f"uid-of-p{index}"}
    found["metadata"]["labels"][names.INDEX_LABEL] = str(index)
    return msgspec.convert(found, Job)


def ended(code, at, message=""):
    state = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    return {"terminated": state | {"finishedAt": at}}


def pod_of(build, index, *states, deadline=None, base="worker", **changes):
    """Its pod; a state for each worker, None where the kubelet says nothing of it."""
    found = msgspec.to_builtins(build.pod(index, **{"node": NODES[index]} | changes))
    owner = {"kind": "Job", "name": f"train-1-p{index}", "uid": f"uid-of-p{index}"}
    found["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    workers = PODS[index]
    (container,) = found["spec"]["containers"]
    found["spec"]["containers"] = [container | {"name": f"{base}-{w}"} for w in workers]
    if deadline is not None:
        found["spec"]["activeDeadlineSeconds"] = deadline
    given = states or ({"running": {}},) * len(workers)
    found["status"]["containerStatuses"] = [
        {"name": f"{base}-{worker}", "state": state}
        for worker, state in zip(workers, given, strict=True)
        if state is not None
    ]
    return msgspec.convert(found, Pod)


RUNS = {"running": {}}


@pytest.fixture
def look(build):
    """Decide about the gang with these pods and both Jobs, or with others."""

    def decided(*pods, jobs=None, now=30, write=False, gang=None, answer=None, **spec):
        gang = gang or build.admitted(nodes=NODES, podPerWorker=False, **spec)
        jobs = [job_of(build, index) for index in PODS] if jobs is None else jobs
        decision = decide(build.see(gang, jobs=jobs, pods=pods, now=now, answer=answer))
        return (decision, build.after(gang, decision)) if write else decision

    return decided


@pytest.fixture
def fails(build, look):
    """Worker 1 fails; worker 0 of the same pod and worker 2 continue."""

    def failed(now=31, code=3, **spec):
        first = pod_of(build, 0, RUNS, ended(code, build.stamp(30)))
        second = pod_of(build, 2)
        return (*look(first, second, now=now, write=True, **spec), (first, second))

    return failed


def outcome(decision):
    attempt = decision.status.attempts[-1]
    return attempt.outcome, attempt.reason


def test_a_job_runs_when_the_container_of_each_worker_runs(build, look):
    assert look(pod_of(build, 0), pod_of(build, 2)).status.phase == "Running"
    starting = pod_of(build, 0, RUNS, {"waiting": {"reason": "ContainerCreating"}})
    assert look(starting, pod_of(build, 2)).status.phase == "Admitted"


def test_a_job_succeeds_when_each_worker_has_and_keeps_all_results(build, look):
    terminated = [ended(0, build.stamp(20 + i), RESULT % i) for i in range(3)]
    done = look(
        pod_of(build, 0, terminated[0], terminated[1], phase="Succeeded"),
        pod_of(build, 2, terminated[2], phase="Succeeded"),
    )
    assert done.status.phase == "Succeeded"
    assert [(r.worker, r.headline) for r in done.status.results] == [
        (i, f"worker {i}") for i in range(3)
    ]
    assert done.status.attempts[-1].ended_at == build.stamp(22).replace("+00:00", "Z")


def test_a_job_continues_after_one_worker_of_a_pod_has_ended(build, look):
    first = pod_of(build, 0, ended(0, build.stamp(20)), RUNS)
    assert look(first, pod_of(build, 2)).status.phase == "Running"


def rejected(build):
    """A running pod that its kubelet admits no more as it starts: it forgets the containers."""
    found = msgspec.to_builtins(pod_of(build, 0, None, None, phase="Failed"))
    why = "Pod was rejected: Allocate failed due to no healthy devices present"
    found["status"] |= {"reason": "UnexpectedAdmissionError", "message": why}
    return msgspec.convert(found, Pod)


def test_a_pod_rejected_after_one_worker_succeeded_restarts_the_attempt(build, look):
    terminated = ended(0, build.stamp(20), RESULT % 0)
    running = (pod_of(build, 0, terminated, RUNS), pod_of(build, 2))
    _, gang = look(*running, now=40, write=True)
    decision = look(rejected(build), pod_of(build, 2), gang=gang, now=41)
    assert outcome(decision) == ("Infrastructure", "UnexpectedAdmissionError")
    assert (decision.status.phase, decision.status.results) == ("Pending", ())
    assert "no healthy devices present" in decision.status.attempts[-1].message


def with_conditions(build, pod, *, written_at):
    found = msgspec.to_builtins(pod)
    found["status"]["conditions"] = [
        {"type": each, "status": "True", "lastTransitionTime": build.stamp(written_at)}
        for each in ("PodScheduled", "Initialized")
    ]
    return msgspec.convert(found, Pod)


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_worker_that_a_restarted_kubelet_ends_has_not_failed(build, look, phase):
    """It exits 143 on SIGTERM, and the kubelet shows that before it says why, if it ever does."""
    states = (ended(0, build.stamp(20)), ended(143, build.stamp(40)))
    pod = with_conditions(build, pod_of(build, 0, *states, phase=phase), written_at=41)
    decision = look(pod, pod_of(build, 2), now=42)
    assert outcome(decision) == ("Infrastructure", "UnexpectedAdmissionError")
    assert decision.status.phase == "Pending"


@pytest.mark.parametrize(("written_at", "is_lost"), [(10, False), (20, False), (41, True)])
def test_a_worker_that_a_restarted_kubelet_ends_has_not_succeeded(build, look, written_at, is_lost):
    """It exits 0 on SIGTERM. The kubelet drops its reason and calls the pod Succeeded."""
    pod = pod_of(build, 0, ended(0, build.stamp(20)), ended(0, build.stamp(40)), phase="Succeeded")
    pod = with_conditions(build, pod, written_at=written_at)
    second = pod_of(build, 2, ended(0, build.stamp(30)), phase="Succeeded")
    decision = look(pod, second, now=50)
    lost = ("Infrastructure", "UnexpectedAdmissionError")
    assert outcome(decision) == (lost if is_lost else ("Succeeded", "Completed"))


def test_a_worker_that_fails_ends_the_others_of_its_pod_and_keeps_their_logs(fails):
    decision, _, (first, _) = fails(maxRestarts=1)
    assert outcome(decision) == ("Failed", "WorkerFailed")
    fault = decision.status.attempts[-1].fault
    assert (fault.worker, fault.node) == (1, "a")
    assert "container worker-1 ended with exit code 3" in decision.status.attempts[-1].message
    assert decision.actions == (
        EndPod(name=first.metadata.name, uid=first.metadata.uid),
        DeleteJob(name="train-1-p2", uid="uid-of-p2", attempt=1),
    )


def test_only_logs_of_deleted_pods_are_saved(fails):
    decision, _, (_, second) = fails()
    assert decision.logs.sources == (LogSource(2, second.metadata.name, "worker-2"),)


def test_a_job_that_fails_finally_ends_its_other_workers_too(fails):
    decision, _, (first, _) = fails()
    assert decision.status.phase == "Failed"
    assert decision.actions == (
        EndPod(name=first.metadata.name, uid=first.metadata.uid),
        DeleteJob(name="train-1-p2", uid="uid-of-p2", attempt=1),
    )


def test_a_restarted_operator_ends_the_remaining_workers(build, look, fails):
    decision, gang, pods = fails()
    again = look(*pods, gang=gang, now=32)
    assert again.actions == decision.actions


def test_a_terminating_pod_has_its_grace_period_before_its_job_is_stopped(build, look, fails):
    _, gang, _ = fails()
    left = [job_of(build, 0)]
    ending = pod_of(build, 0, RUNS, ended(3, build.stamp(30)), deadline=1)
    waits = look(ending, jobs=left, gang=gang, now=70)
    assert (waits.actions, waits.again_at) == ((), build.at(71))
    over = look(ending, jobs=left, gang=gang, now=71)
    assert over.actions == (StopJob(name="train-1-p0"),)


def test_an_ended_pod_stays_for_its_logs(build, look, fails):
    _, gang, _ = fails()
    over = [job_of(build, 0, conditions=[("Failed", 40)])]
    stays = pod_of(build, 0, ended(143, build.stamp(40)), ended(3, build.stamp(30)), phase="Failed")
    assert look(stays, jobs=over, gang=gang, now=50).actions == ()


def test_the_next_attempt_waits_until_all_pods_have_ended(build, look, fails):
    _, gang, _ = fails(maxRestarts=1)
    ending = pod_of(build, 0, RUNS, ended(3, build.stamp(30)), deadline=1)
    waits = look(ending, jobs=[job_of(build, 0)], gang=gang, now=40)
    assert waits.actions == ()
    over = [job_of(build, 0, conditions=[("Failed", 40)])]
    stays = pod_of(build, 0, ended(143, build.stamp(40)), ended(3, build.stamp(30)), phase="Failed")
    (plan,) = look(stays, jobs=over, gang=gang, now=50).actions
    assert plan.attempt == 2


def test_an_ignored_failure_ends_no_other_worker(build, look, fails):
    decision, gang, _ = fails(code=6, failurePolicy=IGNORE_6)
    assert (decision.status.phase, decision.actions) == ("Running", ())
    first = pod_of(build, 0, ended(0, build.stamp(40)), ended(6, build.stamp(30)), phase="Failed")
    jobs = [job_of(build, 0, conditions=[("Failed", 40)]), job_of(build, 2)]
    goes_on = look(first, pod_of(build, 2), jobs=jobs, gang=gang, now=50)
    assert goes_on.status.phase == "Running"
    record_ended_workers = goes_on.status.ended_workers
    assert (record_ended_workers.succeeded, record_ended_workers.ignored) == ("0", "1")
    done = pod_of(build, 2, ended(0, build.stamp(60)), phase="Succeeded")
    gang = build.after(gang, goes_on)
    found = look(done, jobs=jobs, gang=gang, now=61)
    assert (found.status.phase, found.status.reason) == ("Succeeded", "FailuresIgnored")


def test_a_lost_pod_is_an_infrastructure_failure_for_each_of_its_workers(build, look):
    evicted = pod_of(
        build,
        0,
        ended(137, build.stamp(22)),
        ended(137, build.stamp(22)),
        phase="Failed",
        reason="Evicted",
    )
    assert outcome(look(evicted, pod_of(build, 2)))[0] == "Infrastructure"


def test_a_worker_that_completed_before_its_pod_was_lost_has_completed(build, look):
    lost = pod_of(
        build,
        0,
        ended(0, build.stamp(10)),
        ended(143, build.stamp(25)),
        deleted=22,
    )
    found = look(lost, pod_of(build, 2))
    assert outcome(found)[0] == "Infrastructure"
    assert found.status.attempts[-1].fault.worker == 1


@pytest.mark.parametrize(
    ("spec", "reason"), [({"suspend": True}, "Suspended"), ({"activeDeadlineSeconds": 20}, "")]
)
def test_all_jobs_of_a_suspended_gang_are_deleted(build, look, spec, reason):
    gang = build.admitted(nodes=NODES, podPerWorker=False)
    gang = structs.replace(gang, spec=build.gpujob(workers=3, podPerWorker=False, **spec).spec)
    decision = look(pod_of(build, 0), pod_of(build, 2), gang=gang)
    deleted = [a.name for a in decision.actions if isinstance(a, DeleteJob)]
    assert deleted == (["train-1-p0", "train-1-p2"] if reason else [])


def test_an_edited_deadline_is_passed_on_to_each_job(build, look):
    jobs = [job_of(build, index, deadline=900, started=index) for index in PODS]
    decision = look(pod_of(build, 0), pod_of(build, 2), jobs=jobs, activeDeadlineSeconds=100)
    assert decision.actions == (
        SetDeadline(name="train-1-p0", seconds=101),
        SetDeadline(name="train-1-p2", seconds=99),
    )


def test_missing_jobs_are_created_while_pods_of_others_wait(build, look):
    waits = pod_of(build, 0, None, None, phase="Pending", node="")
    decision = look(waits, jobs=[job_of(build, 0)], now=5)
    assert decision.actions == (CreateChildren(attempt=1, deadline_seconds=None),)


def test_a_job_deleted_after_a_worker_started_ends_the_attempt(build, look):
    starting = pod_of(build, 0, RUNS, None)
    found = look(starting, jobs=[job_of(build, 0)], now=5)
    assert outcome(found) == ("Infrastructure", "JobDeleted")
    assert found.actions == (DeleteJob(name="train-1-p0", uid="uid-of-p0", attempt=1),)


def test_one_refused_job_ends_the_attempt(look):
    no = CreationFailure(JobReason.CREATION_FORBIDDEN, "exceeded quota", permanent=False)
    found = look(jobs=[], answer=no, now=1)
    assert outcome(found) == ("Infrastructure", "CreationForbidden")


def test_the_job_without_a_pod_is_named_in_the_message(build, look):
    found = look(pod_of(build, 0, None, None, phase="Pending", node=""), now=12)
    assert outcome(found) == ("Infrastructure", "CreationForbidden")
    assert "2 of 3 workers have pods" in found.status.attempts[-1].message
    assert "involvedObject.name=train-1-p2" in found.status.attempts[-1].message


def test_shared_pods_as_planned_request_nothing_more(build, look):
    planned = {"containers": [{"name": "worker", "resources": {"limits": {names.GPU: "1"}}}]}
    gang = build.admitted(nodes=NODES, podPerWorker=False)
    status = structs.replace(gang.status, planned_pod=PlannedPod(spec=planned))
    gang = structs.replace(gang, status=status)
    waits = pod_of(build, 0, None, None, phase="Pending")
    found = look(waits, pod_of(build, 2), gang=gang, now=5)
    assert "request more" not in found.status.message


FORGED = {
    "one container too few": lambda build: [pod_of(build, 0), with_containers(build, 1)],
    "one too many": lambda build: [pod_of(build, 0), with_containers(build, 3)],
    "another worker's name": lambda build: [pod_of(build, 0), named(build, "worker-7")],
}


def with_containers(build, count):
    found = pod_of(build, 2)
    (container,) = found.spec.containers
    containers = tuple(structs.replace(container, name=f"worker-{2 + i}") for i in range(count))
    spec = structs.replace(found.spec, containers=containers if count != 1 else ())
    return structs.replace(found, spec=spec)


def named(build, name):
    found = pod_of(build, 2)
    (container,) = found.spec.containers
    spec = structs.replace(found.spec, containers=(structs.replace(container, name=name),))
    return structs.replace(found, spec=spec)


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_pod_that_differs_from_its_job_has_no_worker(look, build, forged):
    found = look(*forged(build), now=12)
    assert outcome(found) == ("Infrastructure", "CreationForbidden")
    assert "train-1-2-x" in found.status.attempts[-1].message


def test_a_container_may_have_any_name_in_the_template(build, look):
    assert look(pod_of(build, 0, base="main"), pod_of(build, 2)).status.phase == "Running"
