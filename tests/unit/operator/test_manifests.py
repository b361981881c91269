# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import pytest
from msgspec import structs

from gpupack.process_setup import Place, place_of
from gpupack_crds import names
from gpupack_crds.vendors import Vendor, Vendors
from gpupack_operator.manifests.affinity import REQUIRED, pinned
from gpupack_operator.manifests.job import job, job_beside
from gpupack_operator.manifests.pod import PodDefaults, kind, template
from gpupack_operator.manifests.pulling import Pulling
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


def test_a_built_in_workload_is_the_image_s_argument(pod_template):
    _, worker = pod_template(workload={"name": "matmul", "args": ["--size=64"]})
    assert worker["image"] == "gpupack/workloads:1"
    assert worker["args"] == ["matmul", "--size=64"]


def test_a_built_in_workload_runs_under_pod_security_s_restricted_level(pod_template):
    found, worker = pod_template(workload={"name": "matmul"})
    assert found["spec"]["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
    }
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_whether_a_user_s_image_runs_as_root_is_the_user_s_to_say(pod_template):
    user = {"spec": {"containers": [{"name": "worker", "image": "train:1"}]}}
    found, worker = pod_template(user, template=user)
    assert "runAsNonRoot" not in found["spec"]["securityContext"]
    assert worker["securityContext"]["capabilities"] == {"drop": ["ALL"]}


PRIVATE = PodDefaults(
    workload_image="registry.example/workloads:1",
    launcher_image="registry.example/agent:1",
    pulling=Pulling("Always", ("ours",)),
)
OWN_IMAGE = {"spec": {"containers": [{"name": "worker", "image": "own:1", "command": ["a.out"]}]}}


def test_a_built_in_workload_names_the_charts_pull_secrets_and_policy(pod_template):
    found, worker = pod_template(defaults=PRIVATE, workload={"name": "matmul"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}]
    assert worker["imagePullPolicy"] == "Always"


def test_a_jobs_own_pull_secrets_stay_beside_the_charts(pod_template):
    user = {"spec": {"imagePullSecrets": [{"name": "own"}, {"name": "ours"}]}}
    found, _ = pod_template(user, defaults=PRIVATE, workload={"name": "matmul"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}, {"name": "own"}]


def test_the_launcher_of_ranks_is_pulled_as_the_chart_says(pod_template):
    found, worker = pod_template(OWN_IMAGE, defaults=PRIVATE, distributed={"backend": "mpi"})
    assert found["spec"]["imagePullSecrets"] == [{"name": "ours"}]
    assert found["spec"]["initContainers"][0]["imagePullPolicy"] == "Always"
    assert "imagePullPolicy" not in worker


def test_pods_without_an_image_of_ours_keep_the_pull_secrets_of_their_account(pod_template):
    """Admission adds the service account's to a pod that names none."""
    found, worker = pod_template(OWN_IMAGE, defaults=PRIVATE)
    assert "imagePullSecrets" not in found["spec"]
    assert "imagePullPolicy" not in worker


def test_without_pull_secrets_none_is_named(pod_template):
    found, _ = pod_template(workload={"name": "matmul"})
    assert "imagePullSecrets" not in found["spec"]


MULTICAST = ("NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST")


@pytest.mark.parametrize(
    ("allowed", "told"), [(False, ["0", "1", "1"]), (True, ["1", "0", "0"])], ids=["off", "on"]
)
def test_nvlink_multicast_is_off_unless_the_administrator_allows_it(pod_template, allowed, told):
    defaults = dataclasses.replace(DEFAULTS, multicast=allowed)
    _, worker = pod_template(defaults=defaults, gpus=2)
    values = {entry["name"]: entry.get("value") for entry in worker["env"]}
    assert [values[name] for name in MULTICAST] == told


def test_a_worker_asks_for_its_gpus_and_nothing_else(pod_template):
    _, worker = pod_template(gpus=4)
    assert worker["resources"] == {"limits": {names.GPU: "4"}}


def test_a_share_asks_for_a_slot_with_percent_and_memory(pod_template):
    _, worker = pod_template(share={"percent": 40, "memory": "0.1Gi"})
    asked = {names.GPU_SHARE: "1", names.GPU_PERCENT: "40", names.GPU_MEMORY: "103Mi"}
    assert worker["resources"] == {"limits": asked}


EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
FIXED = "karpenter.sh/do-not-disrupt"


def test_autoscalers_leave_the_nodes_of_workers_alone(pod_template):
    found, _ = pod_template(gpus=4)
    assert found["metadata"]["annotations"] == {EVICTABLE: "false", FIXED: "true"}


def test_autoscalers_may_drain_the_nodes_of_a_job_that_is_movable(pod_template):
    found, _ = pod_template(gpus=4, movable=True)
    assert found["metadata"]["annotations"] == {}


def test_the_template_decides_whether_autoscalers_may_drain_a_worker_s_node(pod_template):
    mine = {EVICTABLE: "true", "team": "a"}
    found, _ = pod_template({"metadata": {"annotations": mine}}, gpus=4)
    assert found["metadata"]["annotations"] == mine | {FIXED: "true"}


def test_autoscalers_leave_the_nodes_of_extra_workers_alone(build, pod_template):
    of = build.gpujob(workers=3, minWorkers=2)
    made = pod_template(workers=3, minWorkers=2)[0]
    extra = job_beside(of, made, attempt=2, worker=2, node="a")
    annotations = extra["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {EVICTABLE: "false", FIXED: "true"}


def test_gpus_of_another_plugin_are_asked_for_by_its_name(pod_template):
    _, worker = pod_template(gpus=4, resourceName="nvidia.com/gpu")
    assert worker["resources"] == {"limits": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(("wanted", "told"), [("auto", "gloo"), ("nccl", "nccl"), ("gloo", "gloo")])
def test_workers_with_shares_may_be_on_one_gpu_where_nccl_cannot_be(pod_template, wanted, told):
    share = {"percent": 40, "memory": "1Gi"}
    _, worker = pod_template(share=share, workers=2, distributed={"backend": wanted})
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_BACKEND"] == told
    assert (env["GPUPACK_GPUS"], env["GPUPACK_PROCESSES_PER_WORKER"]) == ("1", "1")


def test_workers_with_whole_gpus_choose_the_backend_themselves(pod_template):
    _, worker = pod_template(gpus=2)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_BACKEND"] == "auto"


def test_workers_know_where_to_meet(pod_template):
    _, worker = pod_template(workers=2, gpus=4)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_RENDEZVOUS"] == "train-2-0.train.team.svc:29400"
    assert (env["GPUPACK_WORKERS"], env["GPUPACK_PROCESSES_PER_WORKER"]) == ("2", "4")


def test_the_python_api_knows_every_worker_by_what_the_pods_of_a_gang_are_told(pod_template):
    _, worker = pod_template(workers=3, gpus=1)
    env = {each["name"]: each.get("value") or "2" for each in worker["env"]}
    names = tuple(f"train-2-{index}.train.team.svc:29400" for index in range(3))
    assert place_of(env) == Place(names, 2)


def test_a_worker_that_is_alone_meets_itself_and_needs_no_name(pod_template):
    _, worker = pod_template(gpus=4)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_RENDEZVOUS"] == "127.0.0.1:29400"


def test_pods_are_of_one_kind_where_their_jobs_differ_in_names_alone(build):
    def of(name="train", user=None, **spec):
        job = build.gpujob(**spec)
        meta = structs.replace(job.metadata, name=name, uid=f"uid-of-{name}")
        named = structs.replace(job, metadata=meta)
        return kind(named, user or {}, defaults=DEFAULTS)

    labelled = {"metadata": {"labels": {"team": "a"}}}
    others = [of(user=labelled), of(gpus=2), of(workers=2), of(priorityClassName="high")]
    assert of("other") == of()
    assert len({of(), *others}) == 5


def test_pods_of_a_sweep_are_of_one_kind(build):
    def of(**container):
        user = {"spec": {"containers": [{"name": "worker", "image": "x", **container}]}}
        return kind(build.gpujob(), user, defaults=DEFAULTS)

    def with_rate(rate):
        return of(args=[rate], command=[rate], env=[{"name": "RATE", "value": rate}])

    assert with_rate("0.1") == with_rate("0.2")
    others = [of(image="y"), of(env=[{"name": "STEPS", "value": "1"}]), of(args=[1]), of(args="x")]
    assert len({of(), *others}) == 5


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_the_end_of_a_log_speaks_for_a_container_that_failed_without_a_word(pod_template, kind):
    mine = {"name": "a", "terminationMessagePolicy": "File"}
    user = {"spec": {kind: [mine, {"name": "b"}]}}
    found, _ = pod_template(user, workload={"name": "matmul"})
    policies = {each["name"]: each["terminationMessagePolicy"] for each in found["spec"][kind]}
    assert (policies["a"], policies["b"]) == ("File", "FallbackToLogsOnError")


def test_a_container_that_is_alone_is_the_worker_under_its_own_name(pod_template):
    user = {"spec": {"containers": [{"name": "main", "image": "own:1"}]}}
    found, worker = pod_template(user, gpus=2)
    assert [each["name"] for each in found["spec"]["containers"]] == ["main"]
    assert worker["resources"] == {"limits": {names.GPU: "2"}}


def test_a_container_beside_a_workload_or_a_worker_is_only_a_neighbour(pod_template):
    beside = {"name": "main", "image": "own:1"}
    for user, spec in (
        ([beside], {"workload": {"name": "matmul"}}),
        ([{"name": "worker", "image": "x"}, beside], {}),
    ):
        found, worker = pod_template({"spec": {"containers": user}}, **spec)
        assert [each["name"] for each in found["spec"]["containers"]] == ["worker", "main"]
        assert worker["resources"] == {"limits": {names.GPU: "1"}}


def test_workers_have_the_time_that_the_job_gives_them_to_end(pod_template):
    assert pod_template()[0]["spec"]["terminationGracePeriodSeconds"] == 30
    found, _ = pod_template({"spec": {"terminationGracePeriodSeconds": 600}})
    assert found["spec"]["terminationGracePeriodSeconds"] == 600


def test_the_gang_s_job_has_the_least_and_each_other_worker_a_job_of_its_own(build, pod_template):
    gpujob = build.gpujob(workers=4, minWorkers=2)
    found, _ = pod_template(workers=4, minWorkers=2)
    gang = job(gpujob, found, attempt=2, nodes=("a",), deadline_seconds=None)
    assert gang["spec"]["completions"] == 2
    beside = job_beside(gpujob, found, attempt=2, worker=3, node="b")
    assert beside["metadata"]["name"] == "train-2-x3"
    assert beside["spec"]["completions"] == 1
    assert beside["spec"]["backoffLimit"] == 0
    labels = beside["spec"]["template"]["metadata"]["labels"]
    assert (labels[names.INDEX_LABEL], labels[names.ATTEMPT_LABEL]) == ("3", "2")
    assert labels == beside["metadata"]["labels"]
    assert '"b"' in json.dumps(beside["spec"]["template"]["spec"]["affinity"])


def test_no_attempt_of_any_gpujob_has_the_name_of_a_worker_s_own_job():
    mine = names.extra_job_name("a", attempt=1, worker=3)
    assert mine not in {
        names.job_name(name, attempt=n) for name in ("a", "a-1", "a-1-x") for n in range(40)
    }
    longest = names.extra_job_name("a" * names.MAX_JOB_NAME, attempt=9999, worker=1023)
    assert len(longest) <= 63


def test_who_sets_a_variable_of_torch_himself_is_heard(pod_template):
    mine = [{"name": "PET_NPROC_PER_NODE", "value": "gpu"}, {"name": "RANK", "value": "0"}]
    user = {"spec": {"containers": [{"name": "worker", "env": mine}]}}
    _, worker = pod_template(user, workers=2)
    found = [each for each in worker["env"] if each["name"] in {"PET_NPROC_PER_NODE", "RANK"}]
    assert sorted(found, key=lambda each: each["name"]) == mine


def test_the_user_s_labels_do_not_replace_ours(pod_template):
    found, _ = pod_template({"metadata": {"labels": {"team": "x", names.JOB_LABEL: "y"}}})
    assert found["metadata"]["labels"]["team"] == "x"
    assert found["metadata"]["labels"][names.JOB_LABEL] == "train"
    assert found["metadata"]["labels"][names.ATTEMPT_LABEL] == "2"


def test_fields_that_gpupack_does_not_know_reach_the_pod(pod_template):
    found, _ = pod_template({"spec": {"dnsPolicy": "Default", "containers": []}})
    assert found["spec"]["dnsPolicy"] == "Default"


def test_the_preemption_policy_comes_from_a_class_because_admission_refuses_it_on_pods(
    pod_template,
):
    assert "preemptionPolicy" not in pod_template()[0]["spec"]
    assert "priorityClassName" not in pod_template()[0]["spec"]
    found, _ = pod_template(defaults=PodDefaults(workload_image="x", priority_class="quiet"))
    assert found["spec"]["priorityClassName"] == "quiet"


def test_pods_carry_the_class_of_their_job_so_that_quotas_see_it(pod_template):
    defaults = PodDefaults(workload_image="x", priority_class="quiet")
    found, _ = pod_template(defaults=defaults, priorityClassName="team-high")
    assert found["spec"]["priorityClassName"] == "team-high"


def test_workers_leave_a_lost_node_soon(pod_template):
    found, _ = pod_template()
    assert {each["tolerationSeconds"] for each in found["spec"]["tolerations"]} == {20}


def test_a_pod_is_pinned_to_each_planned_node_by_its_own_term():
    found = node_terms(pinned({}, ("a", "b")))
    assert found == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in ("a", "b")
    ]


def test_a_pod_of_a_gang_on_many_nodes_is_not_pinned_and_stays_small():
    """The plan is held by filter, which answers one node."""
    few, many = (tuple(f"node-{i}" for i in range(number)) for number in (32, 512))
    assert len(node_terms(pinned({}, few))) == 32
    assert pinned({"priority": 1}, many) == {"priority": 1}


def test_terms_of_the_template_count_too():
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x"}]}] * 17}
    asked = {"affinity": {"nodeAffinity": {REQUIRED: required}}}
    assert pinned(asked, ("a", "b")) == asked


def test_pinning_keeps_what_the_template_asks_of_nodes():
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    old = {"key": "old", "operator": "DoesNotExist"}
    required = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [e]} for e in (zone, old)]}}
    spec = {"affinity": {"nodeAffinity": required, "podAffinity": {"x": 1}}}
    found = pinned(spec, ("a", "b"))
    assert [term["matchExpressions"] for term in node_terms(found)] == [[zone]] * 2 + [[old]] * 2
    assert found["affinity"]["podAffinity"] == {"x": 1}


def test_within_a_job_nothing_is_retried(job_spec):
    spec = job_spec(workers=3)
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 0)
    assert "activeDeadlineSeconds" not in spec


def test_a_job_that_ignores_exit_codes_lets_each_index_fail_alone(job_spec):
    spec = job_spec(failurePolicy=[{"exitCodes": [3], "action": "Ignore"}])
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec


def test_a_job_has_what_is_left_of_the_deadline(job_spec):
    assert job_spec(deadline=42)["activeDeadlineSeconds"] == 42


def test_children_go_with_the_gpujob_even_if_the_operator_is_down(build):
    owner = service(build.gpujob())["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["blockOwnerDeletion"]) == (build.UID, False)


def test_workers_find_each_other_before_they_are_ready(build):
    spec = service(build.gpujob())["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def environment_of(pod):
    (worker,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value") for each in worker["env"]}


def test_a_worker_on_another_vendors_gpus_is_told_whose_they_are(pod_template):
    amd = Vendor(resources=("amd.com/gpu",), visible_devices="ROCR_VISIBLE_DEVICES")
    defaults = PodDefaults(workload_image="x", vendors=Vendors({"amd": amd}))
    found, _ = pod_template(defaults=defaults, resourceName="amd.com/gpu", gpus=1)
    told = environment_of(found)
    assert told["GPUPACK_VENDOR"] == "amd"
    assert told["GPUPACK_VISIBLE_DEVICES_VARIABLE"] == "ROCR_VISIBLE_DEVICES"


def test_a_worker_on_gpus_that_gpupack_hands_out_is_told_no_vendor(pod_template):
    found, _ = pod_template()
    assert not environment_of(found).keys() & {"GPUPACK_VENDOR", "ROCR_VISIBLE_DEVICES"}
