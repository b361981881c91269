# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import pytest
from msgspec import structs

from gpupack.process_setup import Place, place_of
from gpupack_crds import names
from gpupack_crds.vendors import Vendor, Vendors
from gpupack_operator.manifests.affinity import REQUIRED, pin_to_nodes
from gpupack_operator.manifests.job import extra_worker_job, job
from gpupack_operator.manifests.pod import PodDefaults, template, template_hash
from gpupack_operator.manifests.pulling import PullSettings
from gpupack_operator.manifests.service import service

DEFAULTS = PodDefaults(workload_image="gpupack/workloads:1")


@pytest.fixture
def pod_template(build):
    def made(user=None, defaults=DEFAULTS, **spec):
        found = template(build.gpujob(**spec), user or {}, attempt=2, defaults=defaults)
        return found, found["spec"]["containers"][0]

    return made


@pytest.fixture
def job_spec(build, pod_template):
    def made(deadline=None, nodes=("a",), **spec):
        gpujob = build.gpujob(**spec)
        made_from = pod_template(**spec)[0]
        manifest = job(gpujob, made_from, attempt=2, nodes=nodes, deadline_seconds=deadline)
        return manifest["spec"]

    return made


def node_terms(pod_spec):
    return pod_spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def test_a_built_in_workload_is_the_argument_of_the_image(pod_template):
    _, worker = pod_template(workload={"name": "matmul", "args": ["--size=64"]})
    assert worker["image"] == "gpupack/workloads:1"
    assert worker["args"] == ["matmul", "--size=64"]


def test_a_built_in_workload_meets_the_restricted_pod_security_level(pod_template):
    found, worker = pod_template(workload={"name": "matmul"})
    assert found["spec"]["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
    }
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_an_image_of_the_user_may_run_as_root(pod_template):
    user = {"spec": {"containers": [{"name": "worker", "image": "train:1"}]}}
    found, worker = pod_template(user, template=user)
    assert "runAsNonRoot" not in found["spec"]["securityContext"]
    assert worker["securityContext"]["capabilities"] == {"drop": ["ALL"]}


PRIVATE = PodDefaults(
    workload_image="registry.example/workloads:1",
    launcher_image="registry.example/agent:1",
    pulling=PullSettings("Always", ("ours",)),
)
OWN_IMAGE = {"spec": {"containers": [{"name": "worker", "image": "own:1", "command": ["a.out"]}]}}


def test_a_built_in_workload_has_the_pull_secrets_and_policy_of_the_chart(pod_template):
    found, worker = pod_template(defaults=PRIVATE, workload={"name": "matmul"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}]
    assert worker["imagePullPolicy"] == "Always"


def test_pull_secrets_of_a_job_are_added_to_those_of_the_chart(pod_template):
    user = {"spec": {"imagePullSecrets": [{"name": "own"}, {"name": "ours"}]}}
    found, _ = pod_template(user, defaults=PRIVATE, workload={"name": "matmul"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}, {"name": "own"}]


def test_the_mpi_launcher_has_the_pull_secrets_and_policy_of_the_chart(pod_template):
    found, worker = pod_template(OWN_IMAGE, defaults=PRIVATE, distributed={"backend": "mpi"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}]
    assert found["spec"]["initContainers"][0]["imagePullPolicy"] == "Always"
    assert "imagePullPolicy" not in worker


def test_pods_with_images_of_the_user_keep_the_pull_secrets_of_their_account(pod_template):
    """Admission adds the service account's to a pod that names none."""
    found, worker = pod_template(OWN_IMAGE, defaults=PRIVATE)
    assert "imagePullSecrets" not in found["spec"]
    assert "imagePullPolicy" not in worker


def test_no_pull_secret_is_named_if_the_chart_has_none(pod_template):
    found, _ = pod_template(workload={"name": "matmul"})
    assert "imagePullSecrets" not in found["spec"]


MULTICAST = ("NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST")


@pytest.mark.parametrize(
    ("allowed", "expected"), [(False, ["0", "1", "1"]), (True, ["1", "0", "0"])], ids=["off", "on"]
)
def test_nvlink_multicast_is_off_unless_the_administrator_allows_it(
    pod_template, allowed, expected
):
    defaults = dataclasses.replace(DEFAULTS, multicast=allowed)
    _, worker = pod_template(defaults=defaults, gpus=2)
    values = {entry["name"]: entry.get("value") for entry in worker["env"]}
    assert [values[name] for name in MULTICAST] == expected


def test_a_worker_requests_only_its_gpus(pod_template):
    _, worker = pod_template(gpus=4)
    assert worker["resources"] == {"limits": {names.GPU: "4"}}


def test_a_share_requests_a_slot_with_percent_and_memory(pod_template):
    _, worker = pod_template(share={"percent": 40, "memory": "0.1Gi"})
    requested = {names.GPU_SHARE: "1", names.GPU_PERCENT: "40", names.GPU_MEMORY: "103Mi"}
    assert worker["resources"] == {"limits": requested}


EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
FIXED = "karpenter.sh/do-not-disrupt"


def test_autoscalers_do_not_drain_the_nodes_of_workers(pod_template):
    found, _ = pod_template(gpus=4)
    assert found["metadata"]["annotations"] == {EVICTABLE: "false", FIXED: "true"}


def test_autoscalers_may_drain_the_nodes_of_a_movable_job(pod_template):
    found, _ = pod_template(gpus=4, movable=True)
    assert found["metadata"]["annotations"] == {}


def test_the_template_decides_whether_autoscalers_may_drain_a_node(pod_template):
    mine = {EVICTABLE: "true", "team": "a"}
    found, _ = pod_template({"metadata": {"annotations": mine}}, gpus=4)
    assert found["metadata"]["annotations"] == mine | {FIXED: "true"}


def test_autoscalers_do_not_drain_the_nodes_of_extra_workers(build, pod_template):
    of = build.gpujob(workers=3, minWorkers=2)
    made = pod_template(workers=3, minWorkers=2)[0]
    extra = extra_worker_job(of, made, attempt=2, worker=2, node="a")
    annotations = extra["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {EVICTABLE: "false", FIXED: "true"}


def test_gpus_of_another_plugin_are_requested_by_its_resource_name(pod_template):
    _, worker = pod_template(gpus=4, resourceName="nvidia.com/gpu")
    assert worker["resources"] == {"limits": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(
    ("backend", "expected"), [("auto", "gloo"), ("nccl", "nccl"), ("gloo", "gloo")]
)
def test_workers_with_shares_use_gloo_by_default(pod_template, backend, expected):
    share = {"percent": 40, "memory": "1Gi"}
    _, worker = pod_template(share=share, workers=2, distributed={"backend": backend})
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_BACKEND"] == expected
    assert (env["GPUPACK_GPUS"], env["GPUPACK_PROCESSES_PER_WORKER"]) == ("1", "1")


def test_the_backend_of_workers_with_whole_gpus_is_auto(pod_template):
    _, worker = pod_template(gpus=2)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_BACKEND"] == "auto"


def test_workers_have_the_address_of_the_rendezvous(pod_template):
    _, worker = pod_template(workers=2, gpus=4)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_RENDEZVOUS"] == "train-2-0.train.team.svc:29400"
    assert (env["GPUPACK_WORKERS"], env["GPUPACK_PROCESSES_PER_WORKER"]) == ("2", "4")


def test_the_python_api_derives_every_worker_address_from_the_environment(pod_template):
    _, worker = pod_template(workers=3, gpus=1)
    env = {each["name"]: each.get("value") or "2" for each in worker["env"]}
    names = tuple(f"train-2-{index}.train.team.svc:29400" for index in range(3))
    assert place_of(env) == Place(names, 2)


def test_a_single_worker_uses_the_loopback_address(pod_template):
    _, worker = pod_template(gpus=4)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_RENDEZVOUS"] == "127.0.0.1:29400"


def test_the_template_hash_ignores_names_of_jobs(build):
    def of(name="train", user=None, **spec):
        job = build.gpujob(**spec)
        meta = structs.replace(job.metadata, name=name, uid=f"uid-of-{name}")
        named = structs.replace(job, metadata=meta)
        return template_hash(named, user or {}, defaults=DEFAULTS)

    labelled = {"metadata": {"labels": {"team": "a"}}}
    others = [of(user=labelled), of(gpus=2), of(workers=2), of(priorityClassName="high")]
    assert of("other") == of()
    assert len({of(), *others}) == 5


def test_the_template_hash_ignores_commands_and_values_of_variables(build):
    def of(**container):
        user = {"spec": {"containers": [{"name": "worker", "image": "x", **container}]}}
        return template_hash(build.gpujob(), user, defaults=DEFAULTS)

    def with_rate(rate):
        return of(args=[rate], command=[rate], env=[{"name": "RATE", "value": rate}])

    assert with_rate("0.1") == with_rate("0.2")
    others = [of(image="y"), of(env=[{"name": "STEPS", "value": "1"}]), of(args=[1]), of(args="x")]
    assert len({of(), *others}) == 5


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_containers_without_a_termination_message_report_the_end_of_their_log(pod_template, kind):
    mine = {"name": "a", "terminationMessagePolicy": "File"}
    user = {"spec": {kind: [mine, {"name": "b"}]}}
    found, _ = pod_template(user, workload={"name": "matmul"})
    policies = {each["name"]: each["terminationMessagePolicy"] for each in found["spec"][kind]}
    assert (policies["a"], policies["b"]) == ("File", "FallbackToLogsOnError")


def test_the_only_container_of_a_template_is_the_worker(pod_template):
    user = {"spec": {"containers": [{"name": "main", "image": "own:1"}]}}
    found, worker = pod_template(user, gpus=2)
    assert [each["name"] for each in found["spec"]["containers"]] == ["main"]
    assert worker["resources"] == {"limits": {names.GPU: "2"}}


def test_other_containers_get_no_gpus(pod_template):
    other = {"name": "main", "image": "own:1"}
    for user, spec in (
        ([other], {"workload": {"name": "matmul"}}),
        ([{"name": "worker", "image": "x"}, other], {}),
    ):
        found, worker = pod_template({"spec": {"containers": user}}, **spec)
        assert [each["name"] for each in found["spec"]["containers"]] == ["worker", "main"]
        assert worker["resources"] == {"limits": {names.GPU: "1"}}


def test_the_template_sets_the_grace_period_of_workers(pod_template):
    assert pod_template()[0]["spec"]["terminationGracePeriodSeconds"] == 30
    found, _ = pod_template({"spec": {"terminationGracePeriodSeconds": 600}})
    assert found["spec"]["terminationGracePeriodSeconds"] == 600


def test_the_job_of_a_gang_has_the_minimum_and_each_extra_worker_has_its_own_job(
    build, pod_template
):
    gpujob = build.gpujob(workers=4, minWorkers=2)
    found, _ = pod_template(workers=4, minWorkers=2)
    gang = job(gpujob, found, attempt=2, nodes=("a",), deadline_seconds=None)
    assert gang["spec"]["completions"] == 2
    extra = extra_worker_job(gpujob, found, attempt=2, worker=3, node="b")
    assert extra["metadata"]["name"] == "train-2-x3"
    assert extra["spec"]["completions"] == 1
    assert extra["spec"]["backoffLimit"] == 0
    labels = extra["spec"]["template"]["metadata"]["labels"]
    assert (labels[names.INDEX_LABEL], labels[names.ATTEMPT_LABEL]) == ("3", "2")
    assert labels == extra["metadata"]["labels"]
    assert '"b"' in json.dumps(extra["spec"]["template"]["spec"]["affinity"])


def test_the_job_of_an_extra_worker_has_no_name_of_an_attempt():
    mine = names.extra_job_name("a", attempt=1, worker=3)
    assert mine not in {
        names.job_name(name, attempt=n) for name in ("a", "a-1", "a-1-x") for n in range(40)
    }
    longest = names.extra_job_name("a" * names.MAX_JOB_NAME, attempt=9999, worker=1023)
    assert len(longest) <= 63


def test_variables_of_torch_in_the_template_take_precedence(pod_template):
    mine = [{"name": "PET_NPROC_PER_NODE", "value": "gpu"}, {"name": "RANK", "value": "0"}]
    user = {"spec": {"containers": [{"name": "worker", "env": mine}]}}
    _, worker = pod_template(user, workers=2)
    found = [each for each in worker["env"] if each["name"] in {"PET_NPROC_PER_NODE", "RANK"}]
    assert sorted(found, key=lambda each: each["name"]) == mine


def test_labels_of_the_template_do_not_replace_those_of_gpupack(pod_template):
    found, _ = pod_template({"metadata": {"labels": {"team": "x", names.JOB_LABEL: "y"}}})
    assert found["metadata"]["labels"]["team"] == "x"
    assert found["metadata"]["labels"][names.JOB_LABEL] == "train"
    assert found["metadata"]["labels"][names.ATTEMPT_LABEL] == "2"


def test_fields_that_gpupack_does_not_know_reach_the_pod(pod_template):
    found, _ = pod_template({"spec": {"dnsPolicy": "Default", "containers": []}})
    assert found["spec"]["dnsPolicy"] == "Default"


def test_the_preemption_policy_comes_from_a_priority_class(
    pod_template,
):
    assert "preemptionPolicy" not in pod_template()[0]["spec"]
    assert "priorityClassName" not in pod_template()[0]["spec"]
    found, _ = pod_template(defaults=PodDefaults(workload_image="x", priority_class="quiet"))
    assert found["spec"]["priorityClassName"] == "quiet"


def test_pods_have_the_priority_class_of_their_job(pod_template):
    defaults = PodDefaults(workload_image="x", priority_class="quiet")
    found, _ = pod_template(defaults=defaults, priorityClassName="team-high")
    assert found["spec"]["priorityClassName"] == "team-high"


def test_workers_tolerate_a_lost_node_only_briefly(pod_template):
    found, _ = pod_template()
    assert {each["tolerationSeconds"] for each in found["spec"]["tolerations"]} == {20}


def test_a_pod_is_pinned_to_each_planned_node_by_its_own_term():
    found = node_terms(pin_to_nodes({}, ("a", "b")))
    assert found == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in ("a", "b")
    ]


def test_a_pod_of_a_gang_on_many_nodes_is_not_pinned():
    """The plan is held by filter, which answers one node."""
    few, many = (tuple(f"node-{i}" for i in range(number)) for number in (32, 512))
    assert len(node_terms(pin_to_nodes({}, few))) == 32
    assert pin_to_nodes({"priority": 1}, many) == {"priority": 1}


def test_terms_of_the_template_count_against_the_limit_of_pinning():
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x"}]}] * 17}
    spec = {"affinity": {"nodeAffinity": {REQUIRED: required}}}
    assert pin_to_nodes(spec, ("a", "b")) == spec


def test_pinning_keeps_the_node_affinity_of_the_template():
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    old = {"key": "old", "operator": "DoesNotExist"}
    required = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [e]} for e in (zone, old)]}}
    spec = {"affinity": {"nodeAffinity": required, "podAffinity": {"x": 1}}}
    found = pin_to_nodes(spec, ("a", "b"))
    assert [term["matchExpressions"] for term in node_terms(found)] == [[zone]] * 2 + [[old]] * 2
    assert found["affinity"]["podAffinity"] == {"x": 1}


def test_a_job_retries_no_worker(job_spec):
    spec = job_spec(workers=3)
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 0)
    assert "activeDeadlineSeconds" not in spec


def test_a_job_that_ignores_exit_codes_lets_each_index_fail_alone(job_spec):
    spec = job_spec(failurePolicy=[{"exitCodes": [3], "action": "Ignore"}])
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec


def test_a_job_has_the_remaining_time_of_the_deadline(job_spec):
    assert job_spec(deadline=42)["activeDeadlineSeconds"] == 42


def test_children_are_garbage_collected_with_the_gpujob(build):
    owner = service(build.gpujob())["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["blockOwnerDeletion"]) == (build.UID, False)


def test_workers_find_each_other_before_they_are_ready(build):
    spec = service(build.gpujob())["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def environment_of(pod):
    (worker,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value") for each in worker["env"]}


def test_a_worker_on_gpus_of_another_vendor_gets_the_name_of_the_vendor(pod_template):
    amd = Vendor(resources=("amd.com/gpu",), visible_devices="ROCR_VISIBLE_DEVICES")
    defaults = PodDefaults(workload_image="x", vendors=Vendors({"amd": amd}))
    found, _ = pod_template(defaults=defaults, resourceName="amd.com/gpu", gpus=1)
    env = environment_of(found)
    assert env["GPUPACK_VENDOR"] == "amd"
    assert env["GPUPACK_VISIBLE_DEVICES_VARIABLE"] == "ROCR_VISIBLE_DEVICES"


def test_a_worker_on_gpus_that_gpupack_assigns_gets_no_vendor(pod_template):
    found, _ = pod_template()
    assert not environment_of(found).keys() & {"GPUPACK_VENDOR", "ROCR_VISIBLE_DEVICES"}
