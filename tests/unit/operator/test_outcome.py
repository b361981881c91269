# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from msgspec import structs

from gpupack_kubeclient.objects import Condition, Container, ContainerStatus
from gpupack_operator.decision.outcome import judge
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import view

AGENT_S_REFUSAL = (
    "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition "
    "desc = gpupack: device GPU-1 failed: XID 79"
)


@pytest.fixture
def verdict(build):
    """The verdict about attempt 1 of two workers, at second 30."""

    def judged(*pods, job=None, now=30, running=True, jobs=None, nodes=("a", "b"), **spec):
        gpujob = build.admitted(nodes=nodes, **spec)
        status = structs.replace(gpujob.status, phase="Running" if running else "Admitted")
        seen = build.see(
            gpujob, jobs=[job or build.job()] if jobs is None else jobs, pods=pods, now=now
        )
        return judge(view(seen, status, status.attempts[-1]))

    return judged


def prepared(pod, *, restart_policy="", **state):
    """The pod with an init container in this state."""
    container = Container(name="init", restart_policy=restart_policy)
    status = msgspec.convert({"name": "init", "state": state}, ContainerStatus)
    return structs.replace(
        pod,
        spec=structs.replace(pod.spec, init_containers=(container,)),
        status=structs.replace(pod.status, init_container_statuses=(status,)),
    )


def not_started(why):
    said = f"failed to create containerd task: {why}"
    return {"exit_code": 128, "ended": 20, "container_reason": "StartError", "message": said}


FAILURES = [
    ("exits by itself", {"exit_code": 3, "ended": 20}, "Failed", JobReason.WORKER_FAILED),
    (
        "out of memory",
        {"exit_code": 137, "ended": 20, "container_reason": "OOMKilled"},
        "Failed",
        JobReason.OUT_OF_MEMORY,
    ),
    (
        "fails, then is deleted",
        {"exit_code": 3, "ended": 20, "deleted": 22},
        "Failed",
        JobReason.WORKER_FAILED,
    ),
    (
        "is deleted, then fails",
        {"exit_code": 143, "ended": 22, "deleted": 20},
        "Infrastructure",
        JobReason.POD_DELETED,
    ),
    ("is deleted", {"phase": "Running", "deleted": 20}, "Infrastructure", JobReason.POD_DELETED),
    (
        "is evicted by a taint",
        {"phase": "Running", "deleted": 20, "disrupted": (20, "DeletionByTaintManager")},
        "Infrastructure",
        "DeletionByTaintManager",
    ),
    (
        "saves and exits 0 as it is deleted",
        {"phase": "Succeeded", "exit_code": 0, "ended": 21, "deleted": 20},
        "Infrastructure",
        JobReason.POD_DELETED,
    ),
    (
        "saves and exits 0 as its node is drained",
        {
            "phase": "Succeeded",
            "exit_code": 0,
            "ended": 20,
            "deleted": 20,
            "disrupted": (20, "EvictionByEvictionAPI"),
        },
        "Infrastructure",
        "EvictionByEvictionAPI",
    ),
    (
        "fails, then is evicted",
        {
            "exit_code": 3,
            "ended": 20,
            "deleted": 22,
            "disrupted": (22, "EvictionByEvictionAPI"),
        },
        "Failed",
        JobReason.WORKER_FAILED,
    ),
    (
        "is evicted by its kubelet",
        {"exit_code": 137, "ended": 20, "reason": "Evicted"},
        "Infrastructure",
        "Evicted",
    ),
    (
        "is rejected by its kubelet",
        {"reason": "UnexpectedAdmissionError"},
        "Infrastructure",
        "UnexpectedAdmissionError",
    ),
    ("is rejected without a word", {}, "Infrastructure", JobReason.POD_REJECTED),
    (
        "is lost by its kubelet",
        {"exit_code": 137, "ended": 20, "container_reason": "ContainerStatusUnknown"},
        "Infrastructure",
        "ContainerStatusUnknown",
    ),
    (
        "is lost by its container runtime",
        {"exit_code": 255, "ended": 20, "container_reason": "Unknown"},
        "Infrastructure",
        "Unknown",
    ),
    (
        "is not started since its kubelet was restarted",
        not_started("failed to create shim task: context canceled"),
        "Infrastructure",
        "StartError",
    ),
    (
        "is not started since its template names no program",
        not_started('exec: "train": executable file not found in $PATH: unknown'),
        "Failed",
        JobReason.WORKER_FAILED,
    ),
    (
        "has a failed sidecar",
        {"exit_code": 1, "ended": 20, "container": "logger"},
        "Failed",
        JobReason.WORKER_FAILED,
    ),
]


@pytest.mark.parametrize(
    ("worker", "outcome", "reason"),
    [case[1:] for case in FAILURES],
    ids=[case[0] for case in FAILURES],
)
def test_a_worker_fails_the_attempt_that(verdict, build, worker, outcome, reason):
    found, _ = verdict(build.pod(0, **{"phase": "Failed", **worker}), build.pod(1))
    assert (found.outcome, found.reason) == (outcome, reason)


def test_a_sidecar_that_its_kubelet_restarts_ends_no_attempt(verdict, build):
    crashed = {"exitCode": 1, "finishedAt": build.stamp(20)}
    helped = prepared(build.pod(0), restart_policy="Always", terminated=crashed)
    assert verdict(helped, build.pod(1))[0] is None


def test_an_init_container_that_failed_is_the_cause(verdict, build):
    failed = {"exitCode": 4, "finishedAt": build.stamp(20)}
    found, _ = verdict(prepared(build.pod(0, phase="Failed"), terminated=failed), build.pod(1))
    assert (found.outcome, found.exit_code) == ("Failed", None)
    assert "container init ended with exit code 4" in found.message


def test_the_earliest_failure_is_the_cause(verdict, build):
    late = build.pod(0, phase="Failed", exit_code=1, ended=25)
    early = build.pod(1, phase="Failed", exit_code=2, ended=20)
    assert verdict(late, early)[0].exit_code == 2


def test_a_worker_that_fails_because_its_peer_was_deleted_is_not_the_cause(verdict, build):
    deleted = build.pod(0, deleted=20)
    peer = build.pod(1, phase="Failed", exit_code=1, ended=22)
    assert verdict(deleted, peer)[0].reason == JobReason.POD_DELETED


def test_the_job_controller_s_deletion_in_the_same_second_is_not_the_cause(verdict, build):
    failed = build.pod(0, phase="Failed", exit_code=1, ended=20)
    assert verdict(failed, build.pod(1, deleted=20))[0].reason == JobReason.WORKER_FAILED


def test_a_deletion_is_judged_after_a_delay_for_failures_of_other_workers(verdict, build):
    found, again_at = verdict(build.pod(0, deleted=20), build.pod(1), now=21)
    assert (found, again_at) == (None, build.at(22))


def test_a_deleted_job_is_an_infrastructure_failure(verdict, build):
    assert verdict(jobs=[])[0].reason == JobReason.JOB_DELETED
    assert verdict(job=build.job(deleted=20))[0].reason == JobReason.JOB_DELETED


def test_a_failed_job_without_pods_is_an_infrastructure_failure(verdict, build):
    failed = build.job(conditions=[("Failed", 20)])
    assert verdict(build.pod(0), job=failed, now=21)[0] is None
    assert verdict(build.pod(0), job=failed, now=23)[0].reason == JobReason.POD_LOST


def test_workers_that_are_not_bound_in_time_are_given_up(verdict, build):
    pods = (build.pod(0), build.pod(1, node="", phase="Pending"))
    assert verdict(*pods, running=False, now=59) == (None, build.at(60))
    found, _ = verdict(*pods, running=False, now=60)
    assert (found.outcome, found.reason) == ("Infrastructure", JobReason.BIND_TIMEOUT)
    assert found.message.startswith("1 of 2 workers")


def scheduled(pod, reason, message):
    condition = Condition(type="PodScheduled", status="False", reason=reason, message=message)
    return structs.replace(pod, status=structs.replace(pod.status, conditions=(condition,)))


def test_a_worker_that_kube_scheduler_refuses_is_named_with_its_node(verdict, build):
    waits = scheduled(build.pod(0, node="", phase="Pending"), "SchedulerError", "others are late")
    ports = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    stuck = scheduled(build.pod(1, node="", phase="Pending"), "Unschedulable", ports)
    found, _ = verdict(waits, stuck, running=False, now=60)
    assert (found.reason, found.worker) == (JobReason.BIND_TIMEOUT, 1)
    assert found.message == (
        f"0 of 2 workers were bound within 60 s: worker 1, planned on node b "
        f"(pod {stuck.metadata.name}): {ports}"
    )


def test_no_node_is_blamed_if_the_scheduler_refused_no_worker(verdict, build):
    waits = scheduled(build.pod(0, node="", phase="Pending"), "SchedulerError", "timed out")
    found, _ = verdict(waits, build.pod(1, node="", phase="Pending"), running=False, now=60)
    assert (found.reason, found.worker) == (JobReason.BIND_TIMEOUT, None)
    assert "worker 0, planned on node a (pod train-1-0-x): timed out" in found.message


def test_a_missing_pod_of_a_running_attempt_is_lost(verdict, build):
    found, _ = verdict(build.pod(0), now=3600)
    assert (found.outcome, found.reason) == ("Infrastructure", JobReason.POD_LOST)
    assert found.message.startswith("1 of 2 pods")


def test_pauses_while_a_large_gang_is_created_are_tolerated(verdict, build):
    pods = (build.pod(0, created=30), build.pod(1, created=30))
    gang = {"nodes": ("a",) * 1024, "job": build.job(started=0), "running": False}
    assert verdict(*pods, now=90, **gang)[0] is None
    assert verdict(*pods, now=91, **gang)[0].reason == "CreationForbidden"


def test_a_large_gang_has_more_time_until_it_must_be_bound(verdict, build):
    pods = (build.pod(0, created=140), build.pod(1, node="", phase="Pending", created=140))
    gang = {"nodes": ("a",) * 1024, "job": build.job(started=0), "running": False}
    assert verdict(*pods, now=161, **gang)[0] is None
    late, _ = verdict(*pods, now=162, **gang)
    assert (late.reason, late.message[:43]) == (
        "BindTimeout",
        "1 of 1024 workers were bound within 162 s: ",
    )


def test_a_job_that_its_controller_ignores_times_out(verdict, build):
    unseen = build.job(started=None)
    assert verdict(job=unseen, running=False, now=179) == (None, build.at(180))
    assert verdict(job=unseen, running=False, now=180)[0].reason == JobReason.BIND_TIMEOUT


def test_the_time_to_bind_starts_with_the_job_controller(verdict, build):
    """It may be a minute behind after hundreds of Jobs at once."""
    pod, job = build.pod(0, node="", phase="Pending", created=100), build.job(started=100)
    assert verdict(pod, job=job, running=False, now=159, nodes=("a",)) == (None, build.at(160))
    late, _ = verdict(pod, job=job, running=False, now=160, nodes=("a",))
    assert late.reason == JobReason.BIND_TIMEOUT


def test_an_attempt_whose_pods_are_forbidden_releases_its_gpus_soon(verdict, build):
    job = build.job(started=2)
    assert verdict(job=job, running=False, now=11) == (None, build.at(12))
    found, _ = verdict(job=job, running=False, now=12)
    assert (found.outcome, found.reason) == ("Infrastructure", JobReason.CREATION_FORBIDDEN)
    assert found.message.startswith("0 of 2 pods exist and for 10 s no other was created: a quota")
    assert "reason=FailedCreate,involvedObject.name=train-1" in found.message


def test_a_gang_that_a_quota_allows_in_part_releases_its_gpus_soon(verdict, build):
    pod = build.pod(0, created=4)
    assert verdict(pod, running=False, now=13) == (None, build.at(14))
    assert verdict(pod, running=False, now=14)[0].reason == JobReason.CREATION_FORBIDDEN


@pytest.mark.parametrize("end", ["Failed", "FailureTarget", "Complete", "SuccessCriteriaMet"])
def test_missing_pods_of_an_ending_job_are_not_reported_as_forbidden(verdict, build, end):
    ending = build.job(conditions=[(end, 11)])
    found, again_at = verdict(job=ending, running=False, now=12)
    assert found is None
    assert again_at > build.at(12)


def test_the_time_to_create_pods_starts_again_with_each_pod(verdict, build):
    nodes = ("a",) * 3
    pods = (build.pod(0, created=1), build.pod(1, created=9))
    assert verdict(*pods, running=False, now=18, nodes=nodes) == (None, build.at(19))


@pytest.mark.parametrize(
    ("waiting", "said", "due", "outcome"),
    [
        ("CreateContainerConfigError", 'secret "token" not found', 61, "Failed"),
        ("CreateContainerConfigError", AGENT_S_REFUSAL, 61, "Infrastructure"),
        ("CreateContainerConfigError", "", 61, "Infrastructure"),
        ("CreateContainerError", "because", 61, "Infrastructure"),
        ("ImagePullBackOff", "because", 121, "Infrastructure"),
        ("ErrImagePull", "because", 121, "Infrastructure"),
    ],
)
def test_a_container_that_cannot_start_ends_the_attempt(
    verdict, build, waiting, said, due, outcome
):
    pods = (build.pod(0), build.pod(1, phase="Pending", waiting=waiting, said=said, bound=1))
    assert verdict(*pods, running=False, now=due - 1) == (None, build.at(due))
    assert verdict(*pods, running=False, now=due)[0].outcome == outcome


def test_a_missing_image_of_an_init_container_is_reported(verdict, build):
    behind = build.pod(1, phase="Pending", waiting="PodInitializing", bound=1)
    pods = (build.pod(0), prepared(behind, waiting={"reason": "ErrImagePull", "message": "no"}))
    assert verdict(*pods, running=False, now=120) == (None, build.at(121))
    assert verdict(*pods, running=False, now=121)[0].reason == JobReason.IMAGE_PULL_FAILED


def test_the_time_to_pull_an_image_starts_after_init_containers(verdict, build):
    stuck = build.pod(1, phase="Pending", waiting="ErrImagePull", bound=1)
    done = {"exitCode": 0, "finishedAt": build.stamp(600)}
    pods = (build.pod(0), prepared(stuck, terminated=done))
    assert verdict(*pods, running=False, now=700) == (None, build.at(720))


def test_a_missing_object_of_the_template_fails_the_job_with_the_message_of_the_kubelet(
    verdict, build
):
    said = 'configmap "settings" not found'
    stuck = build.pod(1, phase="Pending", waiting="CreateContainerConfigError", said=said)
    found, _ = verdict(build.pod(0), stuck, running=False, now=61)
    assert (found.reason, found.permanent) == (JobReason.CANNOT_START, True)
    assert found.message.endswith(said)


def test_a_slow_image_pull_is_tolerated(verdict, build):
    pods = (build.pod(0), build.pod(1, phase="Pending", waiting="ContainerCreating"))
    assert verdict(*pods, running=False, now=3600) == (None, None)


def test_the_deadline_ends_a_running_attempt(verdict, build):
    pods = (build.pod(0), build.pod(1))
    assert verdict(*pods, activeDeadlineSeconds=40) == (None, build.at(40))
    found, _ = verdict(*pods, activeDeadlineSeconds=40, now=40)
    assert found.outcome == "DeadlineExceeded"


def test_succeeded_workers_complete_an_attempt_before_their_job_does(verdict, build):
    pods = [build.pod(i, phase="Succeeded", exit_code=0, ended=20) for i in (0, 1)]
    assert verdict(*pods)[0].outcome == "Succeeded"


@pytest.mark.parametrize("others", [[], [0], [2]], ids=["one pod", "twice", "no such worker"])
def test_every_worker_must_have_succeeded(verdict, build, others):
    pods = [build.pod(i, phase="Succeeded", exit_code=0, ended=20) for i in (0, *others)]
    stranger = build.pod(1, attempt=2, phase="Succeeded", exit_code=0, ended=20)
    assert verdict(*pods, stranger)[0] is None


def test_a_gang_of_which_one_worker_was_drained_has_not_completed(verdict, build):
    drained = build.pod(
        0,
        phase="Succeeded",
        exit_code=0,
        ended=20,
        deleted=20,
        disrupted=(20, "EvictionByEvictionAPI"),
    )
    peer = build.pod(1, phase="Succeeded", exit_code=0, ended=22)
    found, _ = verdict(drained, peer, job=build.job(conditions=[("Complete", 23)]))
    assert (found.outcome, found.reason) == ("Infrastructure", "EvictionByEvictionAPI")


def test_a_worker_that_completed_before_its_node_was_drained_has_completed(verdict, build):
    drained = {"deleted": 24, "disrupted": (24, "EvictionByEvictionAPI")}
    first = build.pod(0, phase="Succeeded", exit_code=0, ended=20, **drained)
    second = build.pod(1, phase="Succeeded", exit_code=0, ended=28)
    assert verdict(first, second)[0].outcome == "Succeeded"


def test_a_complete_job_without_all_pods_names_the_missing_workers(verdict, build):
    pod = build.pod(1, phase="Succeeded", exit_code=0, ended=20)
    found, _ = verdict(pod, job=build.job(conditions=[("Complete", 22)]))
    assert (found.outcome, found.reason) == ("Infrastructure", JobReason.POD_LOST)
    assert "the pods of workers 0 were deleted" in found.message


def test_a_complete_job_waits_for_the_ends_of_its_pods(verdict, build):
    pods = [build.pod(0), build.pod(1)]
    assert verdict(*pods, job=build.job(conditions=[("Complete", 22)]))[0] is None


IGNORE_6 = [{"exitCodes": [6], "action": "Ignore"}]


def test_the_others_continue_after_an_ignored_exit_code(verdict, build):
    ignored = build.pod(0, phase="Failed", exit_code=6, ended=20)
    assert verdict(ignored, build.pod(1), failurePolicy=IGNORE_6)[0] is None


def test_a_job_whose_only_failures_are_ignored_has_succeeded(verdict, build):
    pods = [
        build.pod(0, phase="Failed", exit_code=6, ended=20),
        build.pod(1, phase="Succeeded", exit_code=0, ended=25),
    ]
    failed = build.job(conditions=[("Failed", 26)])
    found, _ = verdict(*pods, job=failed, failurePolicy=IGNORE_6)
    assert (found.outcome, found.reason) == ("Succeeded", JobReason.FAILURES_IGNORED)


def test_an_interrupted_worker_is_no_ignored_failure(verdict, build):
    pods = [
        build.pod(0, phase="Failed", exit_code=6, ended=20),
        build.pod(1, phase="Succeeded", exit_code=0, ended=21, deleted=20),
    ]
    failed = build.job(conditions=[("Failed", 22)])
    assert verdict(*pods, job=failed, failurePolicy=IGNORE_6)[0].outcome == "Infrastructure"


def test_a_failure_that_is_not_ignored_still_counts(verdict, build):
    pods = [
        build.pod(0, phase="Failed", exit_code=6, ended=20),
        build.pod(1, phase="Failed", exit_code=7, ended=25),
    ]
    assert verdict(*pods, failurePolicy=IGNORE_6)[0].exit_code == 7


def test_a_worker_that_its_kubelet_does_not_report_times_out(verdict, build):
    pods = (build.pod(0), build.pod(1, phase="Pending", node="b", bound=5))
    assert verdict(*pods, running=False) == (None, build.at(65))
    found, _ = verdict(*pods, running=False, now=65)
    assert (found.outcome, found.reason) == ("Infrastructure", JobReason.CANNOT_START)
    assert found.message == "worker 1: the kubelet of node b did nothing for 60 s"
