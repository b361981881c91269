# SPDX-License-Identifier: Apache-2.0
"""A GPUJob, an API server, the plan API and an autoscaler that answers when the test says so."""

import msgspec
import pytest
from gpujobs import read_gpujob

from gpupack_crds.plan import GpuShortage, PlanRefusal, PlanResponse
from gpupack_kubeclient.errors import Unreachable
from gpupack_operator.actions import Actor
from gpupack_operator.cache import Cache
from gpupack_operator.decision.model import Limits
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.fencing import Fence
from gpupack_operator.manifests.pod import PodDefaults
from gpupack_operator.metrics import Metrics
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter
from gpupack_operator.nodes_requests import NO_KIND, NodesRequests
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.priorities import Priorities
from gpupack_operator.reconcile import Reconciler, Sources
from gpupack_operator.waiting_jobs import Key, WaitingJobs

KEY = Key("team", "train")
GPUJOB = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/train"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/team/podtemplates"
JOB = "/apis/batch/v1/namespaces/team/jobs/train-1"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
NO_ROOM = PlanRefusal(reason="TooFewFreeGpus", message="full", gpu_shortage=GpuShortage())


class Cluster:
    """Operator that can be restarted: only the objects of the API server remain."""

    def __init__(self, server, build, **spec):
        meta = {"name": "train", "namespace": "team", "uid": build.UID, "resourceVersion": "7"}
        body = {"gpus": 8, "workers": 2, "workload": {"name": "matmul"}} | spec
        server.put(GPUJOB, {"metadata": meta, "spec": body})
        self.server, self.build = server, build
        self.settings = Provisioning(
            class_name=ATOMIC, after_seconds=0, backoff_seconds=60, retry_after_seconds=60
        )
        self.answer = NO_ROOM
        self.restart()

    async def request_plan(self, _request):
        return self.answer

    def restart(self):
        cache = Cache(gpujobs={KEY: [read_gpujob(self.server.objects[GPUJOB])]})
        api, defaults = self.server.api, PodDefaults(workload_image="x")
        actor = Actor(
            api,
            self,
            defaults=defaults,
            reporter="me",
            tails=None,
            provisioning=self.settings,
        )
        self.nodes = NodesRequests(api, self.settings, actor.planner.admitted_template)
        sources = Sources(
            fence=Fence(api, namespace="gpupack-system"),
            priorities=Priorities(api, max_priority=1000),
            preemptions=Preemptions(),
            nodes=self.nodes,
            nodes_limiter=NodesRequestLimiter(NodesLimits(interval_seconds=0), print),
            metrics=Metrics(),
        )
        self.reconciler = Reconciler(api, actor, cache, WaitingJobs(print), Limits(), sources)

    async def reconcile(self):
        return await self.reconciler.reconcile(KEY)

    def says(self, kind, message=""):
        """The autoscaler's condition."""
        (name,) = (name for name in self.server.objects if name.startswith(REQUESTS))
        condition = {"type": kind, "status": "True", "reason": "Test", "message": message}
        self.server.objects[name]["status"] = {"conditions": [condition]}

    def places(self):
        places = self.build.placement("a", "b")
        self.answer = PlanResponse(placement=places, expires_seconds=10)

    @property
    def status(self):
        return self.server.objects[GPUJOB]["status"]

    @property
    def created(self):
        """Paths of all templates and requests that were created."""
        return [path for path in self.server.names("POST") if path in {REQUESTS, TEMPLATES}]


@pytest.fixture
def cluster(server, build):
    return Cluster(server, build)


async def test_the_status_is_written_before_the_template_and_the_request(cluster):
    await cluster.reconcile()
    paths = [path for _, path in cluster.server.writes if "/events" not in path]
    assert paths[:4] == [f"{GPUJOB}/status", f"{GPUJOB}/status", TEMPLATES, REQUESTS]
    assert cluster.status["nodesRequest"]["state"] == "Requested"


async def test_the_request_has_all_workers_and_is_owned_by_the_job(cluster):
    await cluster.reconcile()
    request = cluster.server.objects[f"{REQUESTS}/train-nodes-1"]
    assert request["spec"] == {
        "provisioningClassName": ATOMIC,
        "parameters": {"ValidUntilSeconds": "900"},
        "podSets": [{"podTemplateRef": {"name": "train-nodes-1"}, "count": 2}],
    }
    template = cluster.server.objects[f"{TEMPLATES}/train-nodes-1"]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"gpupack.dev/gpu": "8"}
    assert "affinity" not in template["template"]["spec"]
    for item in (request, template):
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("GPUJob", cluster.build.UID)


async def test_the_pod_template_has_the_changes_of_admission(cluster):
    """It applies no LimitRange and no RuntimeClass itself."""
    overhead = {"overhead": {"cpu": "250m"}}
    cluster.server.admit = lambda pod: pod | {"spec": pod["spec"] | overhead}
    await cluster.reconcile()
    spec = cluster.server.objects[f"{TEMPLATES}/train-nodes-1"]["template"]["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["volumes"]


async def test_an_elastic_job_requests_nodes_for_its_minimum(server, build):
    cluster = Cluster(server, build, workers=8, minWorkers=2)
    await cluster.reconcile()
    (pods,) = cluster.server.objects[f"{REQUESTS}/train-nodes-1"]["spec"]["podSets"]
    assert pods["count"] == 2
    assert "requests nodes for 16 GPUs" in cluster.status["message"]


async def test_one_worker_per_node_becomes_a_pod_anti_affinity(server, build):
    cluster = Cluster(server, build, spread={"oneWorkerPerNode": True})
    await cluster.reconcile()
    spec = cluster.server.objects[f"{TEMPLATES}/train-nodes-1"]["template"]["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("lost", [TEMPLATES, REQUESTS])
async def test_an_operator_that_stops_between_two_writes_requests_nothing_twice(
    cluster, monkeypatch, lost
):
    create = cluster.server.api.create

    async def dies(resource, body, *, namespace="", **options):
        if resource.collection(namespace) == lost:
            raise Unreachable("killed")
        return await create(resource, body, namespace=namespace, **options)

    monkeypatch.setattr(cluster.server.api, "create", dies)
    with pytest.raises(Unreachable):
        await cluster.reconcile()
    monkeypatch.undo()
    cluster.restart()
    await cluster.reconcile()
    assert cluster.status["nodesRequest"]["number"] == 1
    assert sorted(name for name in cluster.server.objects if "-nodes-" in name) == [
        f"{TEMPLATES}/train-nodes-1",
        f"{REQUESTS}/train-nodes-1",
    ]


async def test_a_created_request_without_a_reply_is_found_after_a_restart(cluster, monkeypatch):
    create = cluster.server.api.create

    async def loses(resource, body, *, namespace="", **options):
        found = await create(resource, body, namespace=namespace, **options)
        if resource.plural == "provisioningrequests":
            raise Unreachable("lost")
        return found

    monkeypatch.setattr(cluster.server.api, "create", loses)
    with pytest.raises(Unreachable):
        await cluster.reconcile()
    monkeypatch.undo()
    cluster.restart()
    await cluster.reconcile()
    assert cluster.status["nodesRequest"]["state"] == "Requested"
    assert cluster.created == [TEMPLATES, REQUESTS, TEMPLATES, REQUESTS]
    assert len([name for name in cluster.server.objects if name.startswith(REQUESTS)]) == 1


async def test_a_restart_after_provisioning_changes_nothing(cluster):
    await cluster.reconcile()
    cluster.says("Provisioned")
    await cluster.reconcile()
    cluster.restart()
    await cluster.reconcile()
    assert cluster.status["nodesRequest"]["state"] == "Provisioned"
    assert cluster.created == [TEMPLATES, REQUESTS]


async def test_workers_on_provisioned_nodes_name_the_request(cluster):
    await cluster.reconcile()
    cluster.says("Provisioned")
    await cluster.reconcile()
    cluster.places()
    cluster.restart()
    await cluster.reconcile()
    annotations = cluster.server.objects[JOB]["spec"]["template"]["metadata"]["annotations"]
    assert (
        annotations.items()
        >= {
            "autoscaling.x-k8s.io/consume-provisioning-request": "train-nodes-1",
            "autoscaling.x-k8s.io/provisioning-class-name": ATOMIC,
        }.items()
    )


async def test_a_failed_request_is_deleted_with_its_template_and_reported(cluster):
    await cluster.reconcile()
    cluster.says("Failed", "no machines")
    await cluster.reconcile()
    assert not [name for name in cluster.server.objects if "-nodes-" in name]
    assert (
        "ProvisioningRequest train-nodes-1: Failed (Test): no machines" in cluster.status["message"]
    )
    assert not cluster.status["nodesRequest"].get("objects")


@pytest.mark.parametrize("kind", ["BookingExpired", "CapacityRevoked"])
async def test_revoked_capacity_is_a_failure(cluster, kind):
    await cluster.reconcile()
    cluster.says(kind)
    await cluster.reconcile()
    assert cluster.status["nodesRequest"]["failures"] == 1


async def test_a_missing_crd_is_reported_and_nothing_is_left(cluster):
    cluster.server.refuse["provisioningrequests"] = (404, "NotFound", "no such resource")
    await cluster.reconcile()
    assert NO_KIND in cluster.status["message"]
    assert not [name for name in cluster.server.objects if "-nodes-" in name]
    assert cluster.status["reason"] == "TooFewFreeGpus"


async def test_a_refusal_of_admission_is_reported(cluster):
    cluster.server.refuse["provisioningrequests"] = (403, "Forbidden", "exceeded quota: objects")
    await cluster.reconcile()
    assert "exceeded quota: objects" in cluster.status["message"]


@pytest.mark.parametrize("path", [TEMPLATES, REQUESTS])
async def test_a_foreign_object_of_the_same_name_is_kept_and_named(cluster, path):
    meta = {"name": "train-nodes-1", "uid": "theirs", "resourceVersion": "1", "namespace": "team"}
    cluster.server.put(f"{path}/train-nodes-1", {"metadata": meta})
    await cluster.reconcile()
    assert "train-nodes-1 exists and belongs to something else" in cluster.status["message"]
    assert [name for name in cluster.server.objects if "-nodes-" in name] == [
        f"{path}/train-nodes-1"
    ]


async def test_a_request_without_the_owner_is_ignored(cluster):
    await cluster.reconcile()
    name = f"{REQUESTS}/train-nodes-1"
    theirs = msgspec.json.decode(msgspec.json.encode(cluster.server.objects[name]))
    theirs["metadata"]["ownerReferences"] = []
    cluster.server.objects[name] = theirs
    cluster.says("Provisioned")
    await cluster.reconcile()
    assert "another client deleted" in cluster.status["message"]
    assert name in cluster.server.objects


async def test_a_job_continues_after_provisioning_is_disabled(cluster):
    await cluster.reconcile()
    cluster.settings = None
    cluster.restart()
    await cluster.reconcile()
    assert cluster.status["nodesRequest"]["state"] == "Withdrawn"
    assert not [name for name in cluster.server.objects if "-nodes-" in name]
