# SPDX-License-Identifier: Apache-2.0
import asyncio
import datetime as dt

import msgspec
import pytest
from fake_api import status as refusal
from gpujobs import read_gpujob

from gpupack_crds import gpujob
from gpupack_crds.kinds import GPUJOBS, GpuNode
from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_kubeclient.errors import Conflict, NotFound, Refused, Unreachable
from gpupack_kubeclient.objects import Job
from gpupack_operator import pod_admission
from gpupack_operator.actions import Actor
from gpupack_operator.cache import Cache
from gpupack_operator.creation_backoff import CreationBackoff
from gpupack_operator.decision.model import DeleteJob, EndPod, Limits, RequestPlan
from gpupack_operator.errors import PlanBusy, PlanUnanswered
from gpupack_operator.fencing import Fence
from gpupack_operator.log_tails import LogTails
from gpupack_operator.manifests import gang as gang_manifests
from gpupack_operator.manifests.pod import PodDefaults
from gpupack_operator.metrics import Metrics
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.nodes_requests import NodesRequests
from gpupack_operator.nvlink_cliques import NvlinkCliques
from gpupack_operator.pod_admission import PodAdmission
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.priorities import Priorities
from gpupack_operator.reconcile import Reconciler, Sources
from gpupack_operator.waiting_jobs import Key, WaitingJobs

KEY = Key("team", "train")
JOBS = "/apis/batch/v1/namespaces/team/jobs"
SERVICES = "/api/v1/namespaces/team/services"
SECRETS = "/api/v1/namespaces/team/secrets"
GPUJOB = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/train"
PREDECESSOR_S = {
    "ownerReferences": [{"kind": "GPUJob", "name": "train", "uid": "old", "controller": True}]
}
GOING = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
FULL = PlanRefusal(reason="TooFewFreeGpus", message="full")


class Plans:
    """A ledger that always answers the same."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = 0
        self.request = None

    async def request_plan(self, request):
        self.requests += 1
        self.request = request
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Scene:
    """A GPUJob in the API server, in the watch's index, and one reconciler."""

    def __init__(self, server, build, *, max_priority=1000, workers=1, provisioning=None):
        meta = {"name": "train", "namespace": "team", "uid": build.UID, "resourceVersion": "7"}
        template = {"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}
        spec = {"gpus": 1, "workload": {"name": "matmul"}, "template": template, "workers": workers}
        self.body = server.put(GPUJOB, {"metadata": meta, "spec": spec})
        self.server = server
        self.cache = Cache(gpujobs={KEY: [read_gpujob(self.body)]})
        self.woken = []
        self.line = WaitingJobs(self.woken.append)
        nodes = "abcd"[:workers]
        self.plan = PlanResponse(placement=build.placement(*nodes), expires_seconds=10)
        self.plans = Plans(self.plan)
        defaults = PodDefaults(workload_image="x", launcher_image="x")
        actor = Actor(
            server.api,
            self.plans,
            defaults=defaults,
            reporter="me",
            tails=LogTails(server.api, lambda _: None),
            provisioning=provisioning,
        )
        self.actor = actor
        fence = Fence(server.api, namespace="gpupack-system")
        self.cliques = NvlinkCliques()
        sources = Sources(
            fence=fence,
            priorities=Priorities(server.api, max_priority=max_priority),
            preemptions=Preemptions(),
            nodes=NodesRequests(server.api, provisioning, actor.planner.admitted_template),
            nodes_limiter=NodesRequestLimiter(NodesLimits(interval_seconds=0), self.woken.append),
            metrics=Metrics(),
            cliques=self.cliques,
        )
        self.reconciler = Reconciler(server.api, actor, self.cache, self.line, Limits(), sources)

    def add(self, name, **spec):
        """Another GPUJob."""
        meta = self.body["metadata"] | {"name": name, "uid": f"uid-of-{name}"}
        body = self.body | {"metadata": meta, "spec": self.body["spec"] | spec}
        self.server.put(GPUJOB.replace("train", name), body)
        key = Key("team", name)
        self.cache.gpujobs[key] = [read_gpujob(body)]
        return key

    async def reconcile(self):
        return await self.reconciler.reconcile(KEY)

    @property
    def status(self):
        return self.server.objects[GPUJOB]["status"]

    def restart(self):
        """Restart the operator: it knows only what the API server holds."""
        self.cache.__init__(gpujobs={KEY: [read_gpujob(self.server.objects[GPUJOB])]})


@pytest.fixture
def scene(server, build):
    return Scene(server, build)


@pytest.fixture
def gang(server, build):
    """A scene of two workers."""
    return Scene(server, build, workers=2)


async def test_the_placement_is_written_before_anything_is_created(gang):
    await gang.reconcile()
    first, *others = [path for _, path in gang.server.writes if "/events" not in path]
    assert first == f"{GPUJOB}/status"
    assert others == [SERVICES, JOBS]
    assert [each["node"] for each in gang.status["placement"]] == ["a", "b"]


@pytest.fixture
def sharing(server, build):
    """A scene of four workers, two on each node."""
    scene = Scene(server, build, workers=4)
    scene.body["spec"] |= {"podPerWorker": False}
    scene.plans.answer = PlanResponse(placement=build.placement(*"abab"), expires_seconds=10)
    scene.restart()
    return scene


async def test_each_shared_pod_gets_a_job(sharing):
    await sharing.reconcile()
    assert {f"{JOBS}/train-1-p0", f"{JOBS}/train-1-p1"} < sharing.server.objects.keys()
    assert f"{JOBS}/train-1" not in sharing.server.objects


async def test_jobs_that_the_watch_does_not_show_yet_are_not_created_again(sharing):
    await sharing.reconcile()
    sharing.restart()
    before = len(sharing.server.names("POST"))
    await sharing.reconcile()
    assert len(sharing.server.names("POST")) == before


async def test_refused_jobs_end_the_attempt(sharing):
    sharing.server.refuse["jobs"] = (403, "Forbidden", "exceeded quota: none")
    await sharing.reconcile()
    (attempt,) = sharing.status["attempts"]
    assert (attempt["reason"], attempt["outcome"]) == ("CreationForbidden", "Infrastructure")


@pytest.fixture
def undecided(sharing, monkeypatch):
    """The same for a job that does not set podPerWorker."""
    monkeypatch.setattr(gpujob, "PODS_ARE_SHARED_BY_DEFAULT", True)
    del sharing.body["spec"]["podPerWorker"]
    sharing.restart()
    return sharing


def jobs_of(scene):
    paths = [path for path in scene.server.objects if path.startswith(f"{JOBS}/")]
    return sorted(path.rpartition("/")[2] for path in paths)


def with_port(scene):
    containers = [{"name": "worker", "ports": [{"containerPort": 80}]}]
    scene.body["spec"]["template"] = {"spec": {"containers": containers}}
    scene.restart()


def refusing_several(said):
    """Refuse pods of several workers."""

    def admit(tried):
        several = len(tried["spec"]["containers"]) > 1
        return refusal(403, "Forbidden", said) if several else tried

    return admit


POD_TOO_LARGE = 'pods "train-1-p0" is forbidden: maximum cpu usage per Pod is 1, but limit is 2'
OVER_QUOTA = 'pods "train-1-p0" is forbidden: exceeded quota: small, requested: cpu=2'


async def test_workers_share_pods_by_default(undecided):
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1-p0", "train-1-p1"]
    assert undecided.status["attempts"][-1]["sharesPods"]
    pod = undecided.server.dry_runs[-1]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["worker-0", "worker-2"]


async def test_a_changed_default_does_not_change_a_running_attempt(undecided, monkeypatch):
    await undecided.reconcile()
    monkeypatch.setattr(gpujob, "PODS_ARE_SHARED_BY_DEFAULT", False)
    undecided.restart()
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1-p0", "train-1-p1"]


async def test_a_template_that_cannot_be_shared_gets_a_pod_for_each_worker(undecided):
    with_port(undecided)
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1"]
    assert "sharesPods" not in undecided.status["attempts"][-1]
    admitted = next(each for each in undecided.status["conditions"] if each["type"] == "Admitted")
    assert "a pod each: container worker opens port 80" in admitted["message"]


async def test_a_template_that_cannot_be_shared_is_refused_if_shared_pods_are_required(sharing):
    with_port(sharing)
    await sharing.reconcile()
    assert (sharing.status["reason"], jobs_of(sharing)) == ("InvalidTemplate", [])


async def test_a_policy_that_refuses_shared_pods_costs_no_attempt(undecided):
    undecided.server.admit = refusing_several(POD_TOO_LARGE)
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1"]
    admitted = next(each for each in undecided.status["conditions"] if each["type"] == "Admitted")
    assert POD_TOO_LARGE in admitted["message"]


async def test_a_slow_dry_run_does_not_use_up_the_time_of_the_plan(undecided, monkeypatch):
    undecided.plans.answer = msgspec.structs.replace(undecided.plans.answer, expires_seconds=2)
    monkeypatch.setattr(PodAdmission, "refusal", lambda *_: asyncio.Event().wait())
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1-p0", "train-1-p1"]


async def test_pods_are_shared_if_the_dry_run_of_a_shared_pod_fails(undecided):
    failed = refusal(500, "InternalError", "failed calling webhook")
    undecided.server.admit = lambda tried: failed if len(tried["spec"]["containers"]) > 1 else tried
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1-p0", "train-1-p1"]


async def test_a_shared_pod_that_is_too_large_to_be_sent_is_refused(undecided):
    undecided.server.admit = lambda tried: (
        refusal(*BODY) if len(tried["spec"]["containers"]) > 1 else tried
    )
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1"]


async def test_the_dry_run_tries_only_the_largest_shared_pod(undecided, build, monkeypatch):
    places = build.placement(*"abbcbc")
    undecided.body["spec"]["workers"] = 6
    undecided.restart()
    undecided.plans.answer = PlanResponse(placement=places, expires_seconds=10)
    built = []
    shared = gang_manifests.job_of_pod
    monkeypatch.setattr(
        gang_manifests, "job_of_pod", lambda *a, **k: built.append(a[2]) or shared(*a, **k)
    )
    seen = undecided.cache.gpujob(KEY)
    await undecided.actor.planner.plan(seen, RequestPlan(1), priority=0, is_quota_uncertain=False)
    assert [each.workers for each in built] == [(1, 2, 4)]


async def test_a_refusal_of_a_quota_does_not_separate_workers(undecided):
    undecided.server.admit = refusing_several(OVER_QUOTA)
    await undecided.reconcile()
    assert jobs_of(undecided) == ["train-1-p0", "train-1-p1"]


ETCD = (500, "InternalError", "etcdserver: request is too large")
UNSENT = (500, "InternalError", "trying to send message larger than max (2400000 vs. 2097152)")
BODY = (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


@pytest.mark.parametrize(
    "answer", [(403, "Forbidden", "no"), (422, "Invalid", "wrong"), ETCD, UNSENT, BODY]
)
async def test_each_worker_has_a_pod_after_a_refused_job_with_a_shared_pod(undecided, answer):
    undecided.server.refuse["jobs"] = answer
    await undecided.reconcile()
    attempt = undecided.status["attempts"][-1]
    assert (attempt["reason"], attempt["outcome"]) == ("SharedPodRejected", "Infrastructure")
    undecided.server.refuse.clear()
    undecided.restart()
    seen = undecided.cache.gpujob(KEY)
    answer = await undecided.actor.planner.plan(
        seen, RequestPlan(2, separate="refused"), priority=0, is_quota_uncertain=False
    )
    assert (answer.shares_pods, answer.separate) == (False, "refused")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("jobs", 'jobs.batch "train-1-p0" is forbidden: exceeded quota: small, requested: x=1'),
        ("services", 'services "train" is forbidden: no Services here'),
    ],
)
async def test_other_refusals_do_not_separate_workers(undecided, kind, said):
    undecided.server.refuse[kind] = (403, "Forbidden", said)
    await undecided.reconcile()
    assert undecided.status["attempts"][-1]["reason"] == "CreationForbidden"


async def test_a_job_that_is_too_large_to_be_stored_fails(gang):
    gang.server.refuse["jobs"] = ETCD
    await gang.reconcile()
    assert gang.status["attempts"][-1]["reason"] == "InvalidTemplate"
    assert gang.status["phase"] == "Failed"


async def test_a_pod_is_ended_by_its_uid_and_a_missing_one_is_ignored(sharing):
    path = "/api/v1/namespaces/team/pods/train-1-p0-x"
    meta = {"name": "train-1-p0-x", "uid": "mine", "resourceVersion": "1"}
    sharing.server.put(path, {"metadata": meta, "spec": {}})
    seen = sharing.cache.gpujob(KEY)
    gone = EndPod(name="gone", uid="other")
    await sharing.actor.patch(seen.job, [gone, EndPod(name="train-1-p0-x", uid="mine")])
    found = sharing.server.objects[path]
    assert (found["metadata"]["uid"], found["spec"]["activeDeadlineSeconds"]) == ("mine", 1)


async def test_another_pod_of_the_same_name_is_not_ended(sharing):
    sharing.server.refuse["pods"] = (422, "Invalid", "metadata.uid: field is immutable")
    seen = sharing.cache.gpujob(KEY)
    await sharing.actor.patch(seen.job, [EndPod(name="train-1-p0-x", uid="gone")])


async def test_a_single_worker_has_no_service(scene):
    await scene.reconcile()
    assert [path for _, path in scene.server.writes if "/events" not in path][1:] == [JOBS]


@pytest.fixture
def ranks(server, build):
    """A scene of two workers whose processes are mpirun's."""
    scene = Scene(server, build, workers=2)
    scene.body["spec"] |= {"workload": {"name": "mpi"}, "distributed": {"backend": "mpi"}}
    scene.restart()
    return scene


KEY_OF_THE_FIRST = f"{SECRETS}/gpupack-mpi-uid-of-train-1"


async def test_the_key_of_mpirun_is_created_before_the_job(ranks):
    await ranks.reconcile()
    made = [path for _, path in ranks.server.writes if "/events" not in path]
    assert made[1:] == [SERVICES, SECRETS, JOBS]


async def test_a_key_of_an_earlier_pass_stays(ranks):
    ranks.server.put(KEY_OF_THE_FIRST, {"metadata": {"name": "key"}, "data": {"key": "x"}})
    await ranks.reconcile()
    assert ranks.server.objects[KEY_OF_THE_FIRST]["data"] == {"key": "x"}
    assert f"{JOBS}/train-1" in ranks.server.objects


async def test_a_refused_secret_ends_the_attempt_before_its_job_is_created(ranks):
    ranks.server.refuse["secrets"] = (403, "Forbidden", "exceeded quota: none")
    await ranks.reconcile()
    (attempt,) = ranks.status["attempts"]
    assert (attempt["reason"], attempt["outcome"]) == ("CreationForbidden", "Infrastructure")
    assert f"{JOBS}/train-1" not in ranks.server.objects


async def test_the_key_is_deleted_with_the_job_of_its_attempt(ranks):
    await ranks.reconcile()
    job = ranks.server.objects[f"{JOBS}/train-1"]
    seen = ranks.cache.gpujob(KEY)
    uid = job["metadata"].get("uid", "")
    await ranks.actor.act(seen, DeleteJob(name="train-1", uid=uid, attempt=1))
    assert ranks.server.names("DELETE") == [f"{JOBS}/train-1", KEY_OF_THE_FIRST]


async def test_the_key_of_an_attempt_with_many_jobs_is_deleted_once(ranks):
    """The Jobs' label names the attempt; no name is parsed."""
    await ranks.reconcile()
    jobs = [f"train-1-p{index}" for index in (0, 2, 4)]
    actions = [DeleteJob(name=name, uid="", attempt=1) for name in jobs]
    await ranks.actor.patch(ranks.cache.gpujob(KEY).job, actions)
    assert ranks.server.names("DELETE").count(KEY_OF_THE_FIRST) == 1


async def test_the_whole_template_reaches_the_job(scene):
    await scene.reconcile()
    pod_spec = scene.server.objects[f"{JOBS}/train-1"]["spec"]["template"]["spec"]
    assert {"name": "data", "emptyDir": {}} in pod_spec["volumes"]


async def test_a_plan_is_requested_with_the_pod_after_admission(scene):
    selector = {"nodeSelector": {"pool": "gold"}}
    scene.server.admit = lambda tried: tried | {"spec": tried["spec"] | selector}
    await scene.reconcile()
    assert scene.plans.request.spec.template is None
    pod_spec = msgspec.json.decode(scene.plans.request.pod_spec)
    assert pod_spec["nodeSelector"] == {"pool": "gold"}
    assert pod_spec["containers"][0]["resources"] == {"requests": {"gpupack.dev/gpu": "1"}}
    assert scene.status["plannedPod"] == {"spec": pod_spec}


async def test_a_plan_is_requested_with_the_template_if_dry_runs_are_not_supported(scene):
    scene.server.refuse = {"pods": (400, "BadRequest", "a webhook does not support dry run")}
    await scene.reconcile()
    pod_spec = msgspec.json.decode(scene.plans.request.pod_spec)
    assert {"name": "data", "emptyDir": {}} in pod_spec["volumes"]
    assert "plannedPod" not in scene.status


async def test_a_second_pass_changes_nothing(scene):
    await scene.reconcile()
    writes = list(scene.server.writes)
    await scene.reconcile()
    assert scene.server.writes == writes
    assert scene.plans.requests == 1


REFUSED = (400, "BadRequest", "results[0].metrics.x: no number")
TOO_LARGE = (500, "InternalError", "etcdserver: request is too large")


def refusing_results(server, answer=REFUSED):
    """Let the API server refuse a status with results."""
    put = server._put

    def judged(path, body):
        if body["status"].get("results"):
            return refusal(*answer)
        return put(path, body)

    server._put = judged


@pytest.mark.parametrize("answer", [REFUSED, TOO_LARGE])
async def test_an_attempt_ends_although_the_api_server_refuses_its_results(scene, build, answer):
    await scene.reconcile()
    refusing_results(scene.server, answer)
    message = '{"schema": "gpupack.dev/result/v1", "headline": "1 img/s", "metrics": {"x": 1}}'
    pod = build.pod(phase="Succeeded", exit_code=0, message=message)
    scene.cache.jobs = {build.UID: [build.job(conditions=[("Complete", 9)])]}
    scene.cache.pods = {build.UID: [pod]}
    await scene.reconcile()
    assert (scene.status["phase"], scene.status.get("results")) == ("Succeeded", None)
    valid = next(each for each in scene.status["conditions"] if each["type"] == "ResultsValid")
    assert (valid["status"], valid["reason"]) == ("False", "ResultUnreadable")
    assert valid["message"].endswith(answer[2])


async def test_workers_that_do_not_use_nvlink_are_reported(server, build):
    scene = Scene(server, build, workers=2)
    scene.body["spec"] |= {"podPerWorker": True}
    scene.restart()
    scene.plans.answer = PlanResponse(placement=build.placement("a", "a"), expires_seconds=10)
    device = {"uuid": "GPU-1", "index": 0, "model": "H200", "memoryMiB": 1, "nvlinkClique": 0}
    body = {"metadata": {"name": "a"}, "status": {"devices": [device | {"health": "Healthy"}]}}
    scene.cliques.upsert(msgspec.convert(body, GpuNode))
    await scene.reconcile()
    message = '{"schema": "gpupack.dev/result/v1", "communication": {"transport": "SHM"}}'
    scene.cache.jobs = {build.UID: [build.job(conditions=[("Complete", 9)])]}
    scene.cache.pods = {
        build.UID: [build.pod(i, phase="Succeeded", exit_code=0, message=message) for i in range(2)]
    }
    await scene.reconcile()
    fast = next(e for e in scene.status["conditions"] if e["type"] == "FastCommunication")
    assert (scene.status["phase"], fast["status"]) == ("Succeeded", "False")
    assert fast["message"] in scene.status["message"]


async def test_results_are_written_in_the_next_pass_after_another_error(scene, build):
    await scene.reconcile()
    refusing_results(scene.server, (500, "InternalError", "etcdserver: request timed out"))
    message = '{"schema": "gpupack.dev/result/v1", "headline": "1 img/s", "metrics": {"x": 1}}'
    scene.cache.jobs = {build.UID: [build.job(conditions=[("Complete", 9)])]}
    scene.cache.pods = {build.UID: [build.pod(phase="Succeeded", exit_code=0, message=message)]}
    with pytest.raises(Refused, match="timed out"):
        await scene.reconcile()
    assert scene.status["phase"] != "Succeeded"


async def test_missing_pods_of_a_complete_job_are_read_from_the_api_server(scene, build):
    await scene.reconcile()
    pod = msgspec.to_builtins(build.pod(phase="Succeeded", exit_code=0, ended=9))
    scene.server.put("/api/v1/namespaces/team/pods/train-1-0-x", pod)
    scene.cache.jobs = {build.UID: [build.job(conditions=[("Complete", 9)])]}
    await scene.reconcile()
    assert (scene.status["phase"], scene.status["reason"]) == ("Succeeded", "Completed")


async def test_a_complete_job_without_pods_is_restarted(scene, build):
    await scene.reconcile()
    scene.cache.jobs = {build.UID: [build.job(conditions=[("Complete", 9)])]}
    await scene.reconcile()
    ended = scene.status["attempts"][0]
    assert (ended["outcome"], ended["reason"]) == ("Infrastructure", "PodLost")


async def test_an_operator_that_stopped_between_status_and_job_creates_the_job(scene):
    await scene.reconcile()
    del scene.server.objects[f"{JOBS}/train-1"]
    scene.restart()
    await scene.reconcile()
    assert f"{JOBS}/train-1" in scene.server.objects
    assert scene.plans.requests == 1


async def test_times_are_those_of_the_api_server(scene):
    scene.server.date = "Sat, 21 Nov 2020 12:00:00 GMT"
    await scene.server.api.get(GPUJOBS, "train", namespace="team")
    await scene.reconcile()
    assert scene.status["startedAt"].startswith("2020-11-21T12:0")
    (event,) = [body for path, body in scene.server.objects.items() if "/events" in path][:1]
    assert event["eventTime"].startswith("2020-11-21T12:0")


async def test_a_waiting_job_requests_a_plan_when_it_is_notified(scene):
    scene.plans.answer = FULL
    assert await scene.reconcile() == pytest.approx(15, abs=0.45)
    assert (scene.status["reason"], scene.server.names("POST")) == ("TooFewFreeGpus", [])
    await scene.reconcile()
    assert scene.plans.requests == 1
    scene.line.notify(KEY)
    scene.plans.answer = scene.plan
    await scene.reconcile()
    assert (scene.woken, scene.status["phase"]) == ([KEY], "Admitted")


async def test_a_waiting_job_requests_a_plan_after_an_edit(scene):
    scene.plans.answer = FULL
    await scene.reconcile()
    stored = scene.server.objects[GPUJOB]
    meta = stored["metadata"] | {"generation": 2, "resourceVersion": "99"}
    edited = scene.server.put(GPUJOB, stored | {"metadata": meta})
    scene.cache.gpujobs[KEY] = [read_gpujob(edited)]
    await scene.reconcile()
    assert scene.plans.requests == 2


async def test_a_plan_request_contains_the_queue_order_of_the_job(server, build):
    scene = Scene(server, build, max_priority=3)
    created = {"creationTimestamp": "2026-11-21T11:00:00Z"}
    scene.body["metadata"] |= created
    key = scene.add("timed", priority=9, activeDeadlineSeconds=600)
    await scene.reconciler.reconcile(key)
    request = scene.plans.request
    assert (request.priority, request.submitted_at) == (3, "2026-11-21T11:00:00Z")
    assert (request.seconds_left, request.waits_since) == (600, request.submitted_at)
    assert server.objects[GPUJOB.replace("train", "timed")]["status"]["priority"] == 3


async def test_a_job_is_woken_when_the_plan_api_is_free(scene):
    scene.plans.answer = PlanBusy("another")
    assert await scene.reconcile() == pytest.approx(15, abs=0.45)
    scene.line.wake_next()
    assert (scene.woken, scene.server.writes) == ([KEY], [])


async def test_a_notification_is_not_lost_while_another_job_is_planned(scene):
    """Several notifications arrive at once, and one plan is made at a time."""
    scene.plans.answer = FULL
    await scene.reconcile()
    scene.line.notify(KEY)
    scene.plans.answer = PlanBusy("another")
    await scene.reconcile()
    scene.line.wake_next()
    scene.plans.answer = scene.plan
    await scene.reconcile()
    assert (scene.plans.requests, scene.status["phase"]) == (3, "Admitted")


async def test_a_plan_whose_write_failed_is_requested_again(scene):
    scene.plans.answer = FULL
    await scene.reconcile()
    scene.line.notify(KEY)
    scene.plans.answer = scene.plan
    stored = scene.server.objects[GPUJOB]
    labelled = stored["metadata"] | {"resourceVersion": "99", "labels": {"a": "b"}}
    scene.server.put(GPUJOB, stored | {"metadata": labelled})
    with pytest.raises(Conflict):
        await scene.reconcile()
    await scene.reconcile()
    assert scene.status["phase"] == "Admitted"


async def in_line(scene, *names):
    """Queue jobs for the plan API; return their keys and the keys woken from then on."""
    scene.plans.answer = PlanBusy("another")
    keys = [scene.add(name) for name in names]
    for key in keys:
        await scene.reconciler.reconcile(key)
    return keys, scene.woken


async def test_a_woken_job_without_a_request_wakes_the_next(scene):
    (first, second), woken = await in_line(scene, "a", "b")
    scene.line.wake_next()
    scene.line.record_answer(first, generation=0, now=dt.datetime.now(dt.UTC))
    assert woken == [first]
    await scene.reconciler.reconcile(first)
    assert (woken, scene.plans.requests) == ([first, second], 2)


async def test_a_failed_pass_wakes_the_next_job(scene):
    (first, second, third), woken = await in_line(scene, "a", "b", "c")
    scene.line.wake_next()
    scene.plans.answer = TypeError()
    with pytest.raises(TypeError):
        await scene.reconciler.reconcile(first)
    del scene.cache.gpujobs[second]
    await scene.reconciler.reconcile(second)
    assert woken == [first, second, third]


async def test_a_woken_job_that_finds_another_being_planned_lines_up_again(scene):
    (first, second), woken = await in_line(scene, "a", "b")
    scene.line.wake_next()
    await scene.reconciler.reconcile(first)
    assert woken == [first]
    scene.line.wake_next()
    scene.line.wake_next()
    assert woken == [first, second, first]


def priority_class(server, value, policy="Never"):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/team-high"
    server.put(path, {"value": value, "preemptionPolicy": policy})


async def test_the_priority_is_that_of_the_class_or_a_limited_number(scene):
    priority_class(scene.server, 1_000_000)
    urgent = scene.add("urgent", priorityClassName="team-high")
    scene.plans.answer = FULL
    await scene.reconciler.reconcile(urgent)
    assert scene.plans.request.priority == 1_000_000
    loud = scene.add("loud", priority=1_000_000_000)
    await scene.reconciler.reconcile(loud)
    assert scene.plans.request.priority == 1000


@pytest.mark.parametrize(
    ("policy", "reason", "said"),
    [
        (None, "PriorityClassMissing", "there is no PriorityClass team-high"),
        ("PreemptLowerPriority", "PriorityClassPreempts", "preemptionPolicy: Never"),
    ],
)
async def test_an_unusable_priority_class_is_named_and_no_plan_is_requested(
    scene, policy, reason, said
):
    if policy:
        priority_class(scene.server, 5, policy)
    key = scene.add("classy", priorityClassName="team-high")
    assert await scene.reconciler.reconcile(key) == pytest.approx(15, abs=0.5)
    status = scene.server.objects[GPUJOB.replace("train", "classy")]["status"]
    assert (status["reason"], said in status["message"]) == (reason, True)
    assert scene.plans.requests == 0


async def test_a_waiting_job_is_not_rewritten_for_a_changed_count(scene):
    scene.plans.answer = FULL
    await scene.reconcile()
    scene.plans.answer = PlanRefusal(reason=FULL.reason, message="2 free")
    scene.line.notify(KEY)
    await scene.reconcile()
    assert scene.server.names("PUT") == [f"{GPUJOB}/status"]
    assert scene.plans.requests == 2


async def test_a_spec_that_changed_during_a_pass_is_read_first(scene):
    newer = scene.body["metadata"] | {"resourceVersion": "8"}
    scene.server.put(GPUJOB, scene.body | {"metadata": newer})
    with pytest.raises(Conflict):
        await scene.reconcile()
    assert scene.server.names("POST") == []
    await scene.reconcile()
    assert f"{JOBS}/train-1" in scene.server.objects


async def test_a_new_gpujob_of_the_same_name_is_read_after_a_conflict(scene):
    meta = scene.body["metadata"] | {"resourceVersion": "8", "uid": "new"}
    scene.server.put(GPUJOB, scene.body | {"metadata": meta})
    with pytest.raises(Conflict):
        await scene.reconcile()
    await scene.reconcile()
    job = scene.server.objects[f"{JOBS}/train-1"]
    assert job["metadata"]["ownerReferences"][0]["uid"] == "new"
    assert {"name": "data", "emptyDir": {}} in job["spec"]["template"]["spec"]["volumes"]


async def test_a_deleted_gpujob_is_ignored_after_a_failed_write(scene):
    del scene.server.objects[GPUJOB]
    with pytest.raises(NotFound):
        await scene.reconcile()
    assert await scene.reconcile() is None
    assert scene.plans.requests == 1


async def test_an_expired_plan_is_not_written(scene, build):
    scene.plans.answer = PlanResponse(placement=build.placement("a"), expires_seconds=2.5)
    scene.server.slow["PUT"] = 2.0
    with pytest.raises(Unreachable, match="before the status was written"):
        await scene.reconcile()
    async with asyncio.timeout(30):
        while not scene.server.names("PUT"):
            await asyncio.sleep(0.01)
    await scene.reconcile()
    assert f"{JOBS}/train-1" in scene.server.objects
    assert scene.plans.requests == 1


async def test_a_late_plan_is_requested_again(scene, build):
    scene.plans.answer = PlanResponse(placement=build.placement("a"), expires_seconds=1)
    await scene.reconcile()
    assert scene.status["reason"] == "SchedulerUnavailable"


async def test_a_service_of_another_owner_is_a_name_conflict(gang):
    gang.server.put(f"{SERVICES}/train", {"metadata": {"name": "train"}})
    await gang.reconcile()
    assert gang.status["attempts"][0]["reason"] == "NameConflict"
    assert gang.status["attempts"][0]["outcome"] == "Infrastructure"


@pytest.mark.parametrize("child", [f"{SERVICES}/train", f"{JOBS}/train-1"])
@pytest.mark.parametrize("meta", [PREDECESSOR_S, GOING], ids=["predecessor's", "going"])
async def test_an_attempt_waits_for_a_child_of_the_same_name_that_is_being_deleted(
    gang, child, meta
):
    gang.server.put(child, {"metadata": {"name": child.rpartition("/")[2]} | meta})
    assert await gang.reconcile() == pytest.approx(1, abs=0.8)
    assert (gang.status["phase"], gang.status["attempt"]) == ("Admitted", 1)
    del gang.server.objects[child]
    await gang.reconcile()
    assert {f"{SERVICES}/train", f"{JOBS}/train-1"} <= gang.server.objects.keys()


async def test_a_template_that_the_api_refuses_fails_the_job(scene):
    scene.server.refuse["jobs"] = (422, "Invalid")
    await scene.reconcile()
    assert (scene.status["phase"], scene.status["reason"]) == ("Failed", "InvalidTemplate")
    assert scene.status["message"] == "Invalid for a test"


async def test_a_template_that_cannot_be_merged_fails_the_job_and_names_the_field(scene):
    mount = {"name": "worker", "volumeMounts": [{"name": "data"}]}
    key = scene.add("broken", template={"spec": {"containers": [mount]}})
    await scene.reconciler.reconcile(key)
    status = scene.server.objects[GPUJOB.replace("train", "broken")]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidTemplate")
    assert status["message"].startswith("spec.template.spec.containers[0].volumeMounts[0]: ")
    assert scene.plans.requests == 0


async def test_no_plan_is_requested_while_pods_are_forbidden(scene):
    scene.server.refuse["pods"] = (403, "Forbidden", "exceeded quota: none")
    seconds = await scene.reconcile()
    assert scene.status["reason"] == "CreationForbidden"
    assert scene.status["message"].startswith("exceeded quota: none; ")
    assert "attempts" not in scene.status
    assert (scene.plans.requests, seconds) == (0, pytest.approx(5, abs=0.5))


async def test_a_dry_run_is_repeated_while_another_job_starts(scene, monkeypatch):
    monkeypatch.setattr(pod_admission, "DOUBTFUL_SECONDS", 0.0)
    second = scene.add("second")
    scene.plans.answer = FULL
    await scene.reconciler.reconcile(second)
    scene.plans.answer = scene.plan
    await scene.reconcile()
    scene.server.refuse["pods"] = (403, "Forbidden", "exceeded quota: one")
    scene.plans.requests = 0
    scene.line.notify(second)
    await scene.reconciler.reconcile(second)
    status = scene.server.objects[GPUJOB.replace("train", "second")]["status"]
    assert (status["reason"], scene.plans.requests) == ("CreationForbidden", 0)


async def test_a_dry_run_is_repeated_after_an_equal_job_started(scene, monkeypatch):
    """The dry run of the first pod preceded the pods that a quota counts."""
    monkeypatch.setattr(pod_admission, "DOUBTFUL_SECONDS", 0.0)
    monkeypatch.setattr(CreationBackoff, "is_quota_uncertain", lambda *_: False)
    await scene.reconcile()
    scene.server.refuse["pods"] = (403, "Forbidden", "exceeded quota: one")
    second = scene.add("second")
    await scene.reconciler.reconcile(second)
    status = scene.server.objects[GPUJOB.replace("train", "second")]["status"]
    assert (status["reason"], scene.plans.requests) == ("CreationForbidden", 1)


async def test_the_next_job_of_a_namespace_waits_after_an_attempt_without_pods(gang):
    second = gang.add("second")
    gang.server.put(f"{SERVICES}/train", {"metadata": {"name": "train"}})
    await gang.reconcile()
    await gang.reconciler.reconcile(second)
    status = gang.server.objects[GPUJOB.replace("train", "second")]["status"]
    assert status["reason"] == "CreationForbidden"
    assert "train: NameConflict: " in status["message"]


async def test_an_internal_error_is_reported_in_the_status_until_a_pass_succeeds(scene):
    bug = TypeError("about another tenant's secret")
    scene.plans.answer = bug
    with pytest.raises(TypeError):
        await scene.reconcile()
    await scene.reconciler.report_failure(KEY, bug, failures=1)
    assert scene.status["reason"] == "InternalError"
    assert "TypeError" in scene.status["message"]
    assert "secret" not in scene.status["message"]
    writes = list(scene.server.writes)
    await scene.reconciler.report_failure(KEY, bug, failures=2)
    assert scene.server.writes == writes
    scene.plans.answer = FULL
    await scene.reconcile()
    assert scene.status["reason"] == "TooFewFreeGpus"


async def test_only_repeated_api_errors_are_reported_in_the_status(scene):
    error = Refused("", status=500, reason="InternalError", said="failed calling webhook x")
    await scene.reconciler.report_failure(KEY, error, failures=2)
    assert scene.server.writes == []
    await scene.reconciler.report_failure(KEY, error, failures=3)
    assert scene.status["reason"] == "ApiError"
    assert scene.status["message"].startswith("the API server refuses: failed calling webhook x;")


async def test_a_failed_write_of_an_error_does_not_stop_the_worker(scene):
    del scene.server.objects[GPUJOB]
    await scene.reconciler.report_failure(KEY, TypeError(), failures=1)
    assert scene.server.writes[0][0] == "PUT"


async def test_events_are_written_after_the_status(scene):
    await scene.reconcile()
    assert scene.server.writes[-1][1] == "/apis/events.k8s.io/v1/namespaces/team/events"


async def test_events_have_ascending_times(gang):
    gang.server.date = "Sat, 21 Nov 2020 12:00:00 GMT"
    gang.server.put(f"{SERVICES}/train", {"metadata": {"name": "train"}})
    await gang.reconcile()
    path = "/apis/events.k8s.io/v1/namespaces/team/events/train."
    found = [body for name, body in sorted(gang.server.objects.items()) if path in name]
    assert [each["reason"] for each in found] == ["Admitted", "Restarting"]
    assert len({each["eventTime"] for each in found}) == 2


async def test_a_deleted_gpujob_needs_no_pass(scene):
    scene.cache.gpujobs = {}
    assert await scene.reconcile() is None


@pytest.fixture
async def elastic(server, build):
    """An elastic gang of 2 to 4 that runs with 2 workers."""
    scene = Scene(server, build, workers=2)
    spec = {"workers": 4, "minWorkers": 2, "workload": {"name": "transformer"}}
    server.objects[GPUJOB]["spec"] |= spec
    scene.restart()
    await scene.reconcile()
    scene.jobs = [msgspec.convert(server.objects[f"{JOBS}/train-1"], Job)]
    scene.cache.jobs = {build.UID: scene.jobs}
    server.writes.clear()
    scene.preemptions = scene.reconciler._preemptions
    scene.preemptions.replace_orders((), (), (), (f"{build.UID}/1",))
    return scene


async def test_new_places_are_written_before_the_job_of_an_extra_worker_is_created(elastic, build):
    elastic.plans.answer = PlanResponse(build.placement("a", "b", "c"), expires_seconds=10)
    await elastic.reconcile()
    assert elastic.plans.request.grows
    assert elastic.plans.request.attempt == 1
    paths = [path for _, path in elastic.server.writes if "/events" not in path]
    assert paths == [f"{GPUJOB}/status", JOBS]
    assert [each["node"] for each in elastic.status["placement"]] == ["a", "b", "c"]
    assert f"{JOBS}/train-1-x2" in elastic.server.objects


async def test_a_restarted_operator_creates_the_missing_job_of_an_extra_worker(elastic, build):
    elastic.plans.answer = PlanResponse(build.placement("a", "b", "c"), expires_seconds=10)
    await elastic.reconcile()
    del elastic.server.objects[f"{JOBS}/train-1-x2"]
    elastic.restart()
    elastic.cache.jobs = {build.UID: elastic.jobs}
    elastic.preemptions.replace_orders(())
    await elastic.reconcile()
    assert f"{JOBS}/train-1-x2" in elastic.server.objects


@pytest.mark.parametrize("answer", [PlanBusy(), PlanUnanswered("down"), FULL])
async def test_a_gang_without_a_growth_plan_continues(elastic, answer):
    elastic.plans.answer = answer
    assert await elastic.reconcile() <= 5
    assert elastic.status["phase"] == "Admitted"
    assert not [path for _, path in elastic.server.writes if path == JOBS]


async def test_an_expired_growth_plan_is_not_written(elastic, build):
    elastic.plans.answer = PlanResponse(build.placement("a", "b", "c"), expires_seconds=0.5)
    await elastic.reconcile()
    assert [each["node"] for each in elastic.status["placement"]] == ["a", "b"]


async def test_a_forbidden_extra_worker_does_not_end_the_attempt(elastic, build):
    elastic.plans.answer = PlanResponse(build.placement("a", "b", "c"), expires_seconds=10)
    elastic.server.refuse["jobs"] = (403, "Forbidden", "exceeded quota: one")
    await elastic.reconcile()
    assert [each["node"] for each in elastic.status["placement"]] == ["a", "b"]
    assert elastic.status["phase"] == "Admitted"
    assert elastic.status["width"]["reason"] == "CreationForbidden"
