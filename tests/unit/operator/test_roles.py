# SPDX-License-Identifier: Apache-2.0
"""A gang of two roles: a leader on a share, two workers with two GPUs each."""

import msgspec
import pytest
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import PlannedPod
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.cache import ReadableGpuJob
from gpupack_operator.decision import gpus
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import CreateChildren, DeleteJob, EndPod, Plan, PlanPending
from gpupack_operator.decision.role_status import with_roles
from gpupack_operator.manifests.gang import GangAttempt, jobs_of_gang
from gpupack_operator.manifests.pod import PodDefaults, has_our_images

SHARE = {"percent": 40, "memory": "8Gi"}
ROLES = [
    {"name": "leader", "share": SHARE, "template": {"spec": {"containers": [{"name": "main"}]}}},
    {"name": "worker", "workers": 2, "gpus": 2, "workload": {"name": "matmul"}},
]
LIMITS = {
    0: {names.GPU_SHARE: "1", names.GPU_PERCENT: "40", names.GPU_MEMORY: "8192Mi"},
    1: {names.GPU: "2"},
    2: {names.GPU: "2"},
}
NODES = ("a", "a", "b")
PLACEMENT = by_node(WorkerPlacement(i, node) for i, node in enumerate(NODES))
DEFAULTS = PodDefaults(workload_image="workloads:dev")


@pytest.fixture
def gang(build):
    """The job of two roles, admitted at 0."""
    fresh = build.gpujob(share=None, roles=ROLES)
    plan = Plan(PLACEMENT, seconds=9, planned_pods={"leader": None, "worker": PlannedPod()})
    return build.after(fresh, decide(build.see(fresh, answer=plan, now=0)))


def job_of(build, index):
    found = msgspec.to_builtins(build.job())
    found["metadata"] |= {"name": f"train-1-p{index}", "uid": f"uid-of-p{index}"}
    found["metadata"]["labels"][names.INDEX_LABEL] = str(index)
    return msgspec.convert(found, Job)


def pod_of(build, index, **changes):
    built = build.pod(index, **{"node": NODES[index], "limits": LIMITS[index]} | changes)
    found = msgspec.to_builtins(built)
    owner = {"kind": "Job", "name": f"train-1-p{index}", "uid": f"uid-of-p{index}"}
    found["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return msgspec.convert(found, Pod)


def see(build, gang, *pods, now=10):
    jobs = [job_of(build, index) for index in range(3)]
    return build.see(gang, jobs=jobs, pods=pods, now=now)


def counts(status):
    return {each.name: (each.workers, each.running, each.succeeded) for each in status.roles}


def cached(spec):
    meta = {"name": "train", "namespace": "team", "uid": "uid-of-train"}
    body = msgspec.json.encode({"metadata": meta, "spec": spec})
    return msgspec.json.decode(body, type=ReadableGpuJob).cached


def test_the_number_of_workers_is_that_of_all_roles(build, gang):
    assert (gang.spec.workers, gang.spec.least, gang.spec.extra) == (3, 3, 0)
    assert not gang.spec.may_share_pods
    assert (gang.status.workers, gang.status.gpus) == (3, "4+40%")
    assert [gang.spec.role_of(index).name for index in range(3)] == ["leader", "worker", "worker"]
    assert gang.spec.role_of(3) is None


def test_admission_creates_the_children_and_shows_the_place_of_each_role(build):
    fresh = build.gpujob(share=None, roles=ROLES)
    planned = {"leader": PlannedPod(spec={"containers": [{"name": "main"}]}), "worker": None}
    decision = decide(build.see(fresh, answer=Plan(PLACEMENT, 9, planned_pods=planned), now=0))
    assert isinstance(decision.actions[0], CreateChildren)
    leader, worker = decision.status.roles
    assert (leader.first, leader.gpus, leader.nodes) == (0, "40%", "a")
    assert (worker.first, worker.gpus, worker.nodes) == (1, "4", "a,b")
    assert leader.planned_pod == planned["leader"]
    assert decision.status.planned_pod is None


def test_a_pending_job_shows_its_roles_and_keeps_the_planned_pods(build):
    fresh = build.gpujob(share=None, roles=ROLES)
    pods = {"leader": PlannedPod(omitted=True), "worker": None}
    answer = PlanPending("TooFewFreeGpus", "full", planned_pods=pods)
    status = decide(build.see(fresh, answer=answer)).status
    assert counts(status) == {"leader": (1, 0, 0), "worker": (2, 0, 0)}
    assert [each.planned_pod for each in status.roles] == [PlannedPod(omitted=True), None]


def test_each_worker_has_a_job_with_the_pod_of_its_role():
    seen = cached({"roles": ROLES})
    job = structs.replace(
        seen.job, status=structs.replace(seen.job.status, attempt=1, placement=PLACEMENT)
    )
    seen = seen.with_job(job)
    attempt = GangAttempt(job, seen.template, 1, 60, seen.kinds)
    jobs = jobs_of_gang(attempt, DEFAULTS, None)
    assert [each["metadata"]["name"] for each in jobs] == [f"train-1-p{i}" for i in range(3)]
    for index, made in enumerate(jobs):
        pod = made["spec"]["template"]
        assert pod["metadata"]["labels"][names.INDEX_LABEL] == str(index)
        assert pod["spec"]["hostname"] == f"train-1-{index}"
        container = pod["spec"]["containers"][0]
        assert container["resources"]["limits"] == LIMITS[index]
        env = {each["name"]: each.get("value") for each in container["env"]}
        role, place, first, last = (("leader", 0, 0, 0), ("worker", index - 1, 1, 2))[index > 0]
        assert (env["GPUPACK_ROLE"], env["GPUPACK_ROLE_INDEX"]) == (role, str(place))
        assert env["GPUPACK_ROLE_WORKERS"] == str(last - first + 1)
        assert env["GPUPACK_ROLES"] == "leader=0-0,worker=1-2"
        assert env["GPUPACK_HOSTS"] == "train-1-{}.train.team.svc"
        assert env["GPUPACK_WORKERS"] == "3"
        assert env["JOB_COMPLETION_INDEX"] == str(index)
        assert env["GPUPACK_RENDEZVOUS"].startswith("train-1-0.train.team.svc:")
        assert "RANK" not in env
        assert made["spec"]["activeDeadlineSeconds"] == 60
        assert pod["metadata"]["labels"][names.ROLE_LABEL] == role
    assert jobs[0]["spec"]["template"]["spec"]["containers"][0]["name"] == "main"


def test_ranks_are_set_only_where_each_worker_has_one_process():
    one_each = [{**ROLES[0]}, {**ROLES[1], "gpus": 1}]
    seen = cached({"roles": one_each})
    status = structs.replace(seen.job.status, attempt=1, placement=PLACEMENT)
    seen = seen.with_job(structs.replace(seen.job, status=status))
    jobs = jobs_of_gang(GangAttempt(seen.job, {}, 1, None, seen.kinds), DEFAULTS, None)
    for made in jobs:
        env = {each["name"] for each in made["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= env


def test_a_job_runs_when_the_workers_of_all_roles_run(build, gang):
    starting = [pod_of(build, 0), pod_of(build, 1, phase="Pending"), pod_of(build, 2)]
    status = decide(see(build, gang, *starting)).status
    assert status.phase == "Admitted"
    assert counts(status) == {"leader": (1, 1, 0), "worker": (2, 1, 0)}
    running = decide(see(build, gang, *(pod_of(build, i) for i in range(3)))).status
    assert running.phase == "Running"
    assert counts(running) == {"leader": (1, 1, 0), "worker": (2, 2, 0)}


def test_a_pod_with_the_gpus_of_another_role_is_no_worker(build, gang):
    foreign = pod_of(build, 1, limits=LIMITS[0])
    status = decide(see(build, gang, pod_of(build, 0), foreign, pod_of(build, 2), now=5)).status
    assert status.phase == "Admitted"
    running = next(each for each in status.conditions if each.type == "Running")
    assert "do not request the GPUs of a worker" in running.message


def test_a_failed_worker_of_one_role_ends_all_roles(build, gang):
    pods = [pod_of(build, 0, phase="Failed", exit_code=3, ended=20), pod_of(build, 1)]
    decision = decide(see(build, gang, *pods, pod_of(build, 2), now=30))
    assert decision.status.phase == "Failed"
    assert counts(decision.status) == {"leader": (1, 0, 0), "worker": (2, 0, 0)}
    ended = {each.name for each in decision.actions if isinstance(each, DeleteJob | EndPod)}
    assert {"train-1-p1", "train-1-p2"} <= ended


def test_a_job_succeeds_when_the_workers_of_all_roles_have(build, gang):
    done = {"phase": "Succeeded", "exit_code": 0, "ended": 20}
    status = decide(see(build, gang, *(pod_of(build, i, **done) for i in range(3)), now=30)).status
    assert status.phase == "Succeeded"
    assert counts(status) == {"leader": (1, 0, 1), "worker": (2, 0, 2)}
    assert all(each.planned_pod is None for each in status.roles)


def test_the_running_workers_of_a_large_role_are_counted_in_steps(build):
    roles = [{"name": "worker", "workers": 100, "gpus": 1, "workload": {"name": "matmul"}}]
    fresh = build.gpujob(share=None, roles=roles)
    placement = by_node(WorkerPlacement(i, f"n{i}") for i in range(100))
    gang = build.after(fresh, decide(build.see(fresh, answer=Plan(placement, 9), now=0)))
    found = []
    for started in (0, 9, 10, 57, 99, 100):
        pods, jobs = [], []
        for index in range(started):
            jobs.append(job_of(build, index))
            pod = msgspec.to_builtins(build.pod(index))
            owner = {"kind": "Job", "name": f"train-1-p{index}", "uid": f"uid-of-p{index}"}
            pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
            pods.append(msgspec.convert(pod, Pod))
        seen = build.see(gang, jobs=jobs, pods=pods)
        found.append(with_roles(seen, gang.status).roles[0].running)
    assert found == [0, 0, 10, 50, 90, 100]


def test_the_gpus_of_roles_are_added_up(build):
    def spec(*roles):
        return build.gpujob(share=None, roles=list(roles)).spec

    whole = [{"name": "a", "gpus": 1}, {"name": "b", "gpus": 8, "workers": 2}]
    assert (gpus.column(spec(*whole)), gpus.number(spec(*whole))) == ("17", 17)
    assert gpus.phrase(spec(*whole)) == "17 GPUs"
    assert gpus.phrase(spec(*ROLES)) == "4 GPUs and 40% of a GPU"
    shares = [{"name": f"r{i}", "workers": 100, "share": SHARE} for i in range(8)]
    assert gpus.column(spec(*shares)) == "800 shares"
    assert gpus.phrase(spec(*shares)) == "800 shares of GPUs"


def test_an_image_of_gpupack_in_any_role_needs_the_pull_secrets(build):
    assert has_our_images(build.gpujob(share=None, roles=ROLES).spec)
    assert not has_our_images(build.gpujob(share=None, roles=ROLES[:1]).spec)
