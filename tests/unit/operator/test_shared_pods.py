# SPDX-License-Identifier: Apache-2.0
"""The Jobs and pods of a gang whose workers share pods: 0 and 2 on node a, 1 on node b."""

import msgspec
import pytest
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob_status import PlannedPod
from gpupack_crds.worker_pods import worker_pods
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import pod as pods
from gpupack_operator.manifests.gang import GangAttempt, jobs_of_gang
from gpupack_operator.manifests.job import job_of_pod
from gpupack_operator.manifests.result_bytes import RESULT_BYTES

DEFAULTS = pods.PodDefaults(workload_image="workloads")
OWN = {"name": "main", "image": "mine"}


@pytest.fixture
def job_of(build):
    """The Job of the pod with worker 0, or of another one."""

    def of(index=0, *, user=None, deadline=None, nodes=("a", "b", "a"), **spec):
        user = {"spec": {"containers": [OWN]}} if user is None else user
        gang = build.gpujob(workers=len(nodes), podPerWorker=False, **spec)
        template = pods.template(gang, user, attempt=1, defaults=DEFAULTS)
        found = worker_pods(build.placement(*nodes), shares=True, least=len(nodes))
        pod = next(each for each in found if each.index == index)
        name = pods.worker_container(gang, user)
        return job_of_pod(gang, template, pod, attempt=1, container=name, deadline_seconds=deadline)

    return of


def template_of(job):
    return job["spec"]["template"]


def containers_of(job):
    return {each["name"]: each for each in template_of(job)["spec"]["containers"]}


def env_of(container):
    return {each["name"]: each.get("value") for each in container["env"]}


def test_each_pod_has_a_job_named_after_its_first_worker(job_of):
    first, second = job_of(0), job_of(1, deadline=90)
    assert [each["metadata"]["name"] for each in (first, second)] == ["train-1-p0", "train-1-p1"]
    spec = second["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
    assert "completionMode" not in spec
    assert (spec["podReplacementPolicy"], spec["activeDeadlineSeconds"]) == ("Failed", 90)
    for labelled in (second, template_of(second)):
        assert labelled["metadata"]["labels"][names.INDEX_LABEL] == "1"


def test_a_pod_has_a_container_for_each_worker_with_its_own_gpus_and_ranks(job_of):
    containers = containers_of(job_of(0, gpus=2))
    assert list(containers) == ["main-0", "main-2"]
    for index, container in zip("02", containers.values(), strict=True):
        assert container["resources"]["limits"] == {names.GPU: "2"}
        env = env_of(container)
        assert (env["GPUPACK_WORKER_INDEX"], env["NODE_RANK"]) == (index, index)
        assert (env["PET_NODE_RANK"], env["JOB_COMPLETION_INDEX"]) == (index, index)
        assert env["GPUPACK_WORKERS"] == "3"


def test_a_process_of_each_worker_knows_its_rank(job_of):
    env = env_of(containers_of(job_of(0))["main-2"])
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("2", "0", "3")
    assert env["MASTER_ADDR"] == "train-1-0.train.team.svc"


def test_a_pod_of_one_worker_is_named_like_the_others(job_of):
    assert list(containers_of(job_of(1))) == ["main-1"]
    assert template_of(job_of(1))["spec"]["hostname"] == "train-1-1"


def test_a_pod_is_pinned_to_its_node(job_of):
    template = template_of(job_of(0))
    assert '"a"' in msgspec.json.encode(template["spec"]["affinity"]).decode()
    assert template["spec"]["hostname"] == "train-1-0"
    annotations = template["metadata"]["annotations"]
    assert names.WORKERS_ANNOTATION not in annotations
    assert annotations["kubectl.kubernetes.io/default-container"] == "main-0"


def test_a_shared_dev_shm_has_the_size_for_all_workers(job_of):
    spec = template_of(job_of(0))["spec"]
    (shm,) = (each for each in spec["volumes"] if each["name"] == "shm")
    assert shm["emptyDir"]["sizeLimit"] == "16Gi"
    for container in spec["containers"]:
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


@pytest.mark.parametrize(("size", "doubled"), [("1.5Gi", "3221225472"), (100, "200"), ("x", "x")])
def test_a_size_of_the_template_is_multiplied_by_the_workers(job_of, size, doubled):
    shm = {"name": "shm", "emptyDir": {"sizeLimit": size}}
    user = {"spec": {"containers": [OWN], "volumes": [shm]}}
    (found,) = template_of(job_of(0, user=user))["spec"]["volumes"]
    assert found["emptyDir"]["sizeLimit"] == doubled


def test_other_containers_of_the_template_exist_once(job_of):
    worker, shipper = OWN | {"name": "worker"}, {"name": "shipper", "image": "x"}
    init = {"name": "fetch", "image": "x"}
    user = {"spec": {"containers": [shipper, worker], "initContainers": [init]}}
    job = job_of(0, user=user)
    assert list(containers_of(job)) == ["worker-0", "worker-2", "shipper"]
    assert [each["name"] for each in template_of(job)["spec"]["initContainers"]] == ["fetch"]


def test_references_to_index_and_resources_are_those_of_each_worker(job_of):
    path = f"metadata.annotations['{names.INDEX_LABEL}']"
    mine = {"name": "MINE", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    cpu = {"containerName": "main", "resource": "limits.cpu"}
    cpus = {"name": "CPUS", "valueFrom": {"resourceFieldRef": cpu}}
    own = OWN | {"env": [mine, cpus, {"name": "JOB_COMPLETION_INDEX", "value": "9"}]}
    container = containers_of(job_of(0, user={"spec": {"containers": [own]}}))["main-2"]
    assert env_of(container)["MINE"] == "2"
    assert env_of(container)["JOB_COMPLETION_INDEX"] == "9"
    (found,) = (each for each in container["env"] if each["name"] == "CPUS")
    assert found["valueFrom"]["resourceFieldRef"]["containerName"] == "main-2"


@pytest.mark.parametrize(
    ("nodes", "others", "size"), [("ab", 0, "4096"), ("aaa", 0, "4096"), ("aaaaaaa", 1, "1536")]
)
def test_workers_get_the_number_of_result_bytes_that_the_kubelet_keeps(job_of, nodes, others, size):
    worker = OWN | {"name": "worker"}
    helpers = [{"name": f"x{number}", "image": "x"} for number in range(others)]
    user = {"spec": {"containers": [worker, *helpers]}}
    container = containers_of(job_of(0, user=user, nodes=tuple(nodes)))["worker-0"]
    assert env_of(container)[RESULT_BYTES] == size


def test_helper_containers_get_the_index_of_the_first_worker(job_of):
    path = f"metadata.annotations['{names.INDEX_LABEL}']"
    mine = {"name": "MINE", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    helpers = [{"name": name, "image": "x", "env": [mine]} for name in ("shipper", "fetch")]
    user = {"spec": {"containers": [OWN | {"name": "worker"}, helpers[0]]}}
    user["spec"]["initContainers"] = [helpers[1]]
    template = template_of(job_of(1, user=user))
    assert template["metadata"]["annotations"][names.INDEX_LABEL] == "1"
    for found in (template["spec"]["containers"][1], template["spec"]["initContainers"][0]):
        assert mine in found["env"]
        assert env_of(found)["JOB_COMPLETION_INDEX"] == "1"


def test_references_to_the_worker_container_are_rewritten(job_of):
    cpu = {"containerName": "worker", "resource": "limits.cpu"}
    shipper = {"name": "shipper", "image": "x"}
    shipper["env"] = [{"name": "CPUS", "valueFrom": {"resourceFieldRef": cpu}}]
    files = {"items": [{"path": "cpus", "resourceFieldRef": cpu}]}
    volumes = [
        {"name": "a", "downwardAPI": files},
        {"name": "b", "projected": {"sources": [{"downwardAPI": files}]}},
    ]
    armor = "container.apparmor.security.beta.kubernetes.io"
    annotations = {f"{armor}/worker": "unconfined", f"{armor}/shipper": "runtime/default"}
    user = {"metadata": {"annotations": annotations}}
    user["spec"] = {"containers": [OWN | {"name": "worker"}, shipper], "volumes": volumes}
    template = template_of(job_of(0, user=user))
    found = msgspec.json.encode(template["spec"]).decode()
    assert found.count('"containerName":"worker-0"') == 3
    assert '"containerName":"worker"' not in found
    kept = {
        key: value for key, value in template["metadata"]["annotations"].items() if armor in key
    }
    assert kept == {
        f"{armor}/worker-0": "unconfined",
        f"{armor}/worker-2": "unconfined",
        f"{armor}/shipper": "runtime/default",
    }


@pytest.mark.parametrize("where", ["volumes", "containers"])
def test_a_template_that_is_nested_too_deeply_is_invalid_before_gpus_are_held(build, where):
    junk = {}
    for _ in range(600):
        junk = {"x": junk}
    user = {"spec": {"containers": [OWN], where: [OWN | {"junk": junk}] * 2}}
    gang = build.gpujob(workers=2)
    with pytest.raises(TemplateInvalid, match="nested more than 64 levels"):
        pods.template(gang, user, attempt=1, defaults=DEFAULTS)


@pytest.mark.parametrize(("nodes", "size"), [("aaa", "3072"), ("abc", "4096")])
def test_containers_added_by_admission_reduce_the_result_bytes(build, nodes, size):
    gang = build.admitted(nodes=tuple(nodes), podPerWorker=False)
    planned = PlannedPod(spec={"containers": [{}, {}]})
    gang = structs.replace(gang, status=structs.replace(gang.status, planned_pod=planned))
    jobs = jobs_of_gang(GangAttempt(gang, {"spec": {"containers": [OWN]}}, 1), DEFAULTS, None)
    container = jobs[0]["spec"]["template"]["spec"]["containers"][0]
    assert env_of(container)[RESULT_BYTES] == size


def user_with(**worker):
    return {"spec": {"containers": [OWN | worker]}}


REFUSED = {
    "a port": (user_with(ports=[{"containerPort": 8080}]), "opens port 8080"),
    "a host's port": (user_with(ports=[{"containerPort": 1, "hostPort": 99}]), "opens port 99"),
    "a probed port": (user_with(livenessProbe={"httpGet": {"port": "web"}}), "opens port web"),
    "a worker's name": (
        {"spec": {"containers": [OWN | {"name": "worker"}, OWN | {"name": "worker-1"}]}},
        "container worker-1 has the name of a worker's",
    ),
    "resources of the pod": (
        {"spec": {"containers": [OWN], "resources": {"limits": {"cpu": "1"}}}},
        "resources are for a pod with one worker",
    ),
}


@pytest.mark.parametrize(("user", "why"), REFUSED.values(), ids=REFUSED)
def test_a_template_that_workers_cannot_share_is_refused(build, user, why):
    gang = build.gpujob(workers=2, podPerWorker=False)
    with pytest.raises(TemplateInvalid, match=why) as refused:
        pods.template(gang, user, attempt=1, defaults=DEFAULTS)
    assert "podPerWorker: true" in str(refused.value)


@pytest.mark.parametrize(("user", "_why"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("spec", [{"podPerWorker": True}, {"workers": 1, "podPerWorker": False}])
def test_a_template_that_cannot_be_shared_is_accepted_for_separate_pods(build, user, _why, spec):
    alone = build.gpujob(**{"workers": 2} | spec)
    assert pods.template(alone, user, attempt=1, defaults=DEFAULTS)


def test_a_port_of_another_container_can_be_shared(build):
    other = {"name": "proxy", "image": "x", "ports": [{"containerPort": 80}]}
    user = {"spec": {"containers": [OWN | {"name": "worker"}, other]}}
    gang = build.gpujob(workers=2, podPerWorker=False)
    assert pods.template(gang, user, attempt=1, defaults=DEFAULTS)
