# SPDX-License-Identifier: Apache-2.0
"""What the parts may do and what they are told, as far as it can be seen without a cluster."""

import pytest
import yaml

from gpupack_crds import names

PARTS = [
    ("Deployment", "gpupack-operator", "operator"),
    ("Deployment", "gpupack-scheduler", "extender"),
    ("Deployment", "gpupack-scheduler", "kube-scheduler"),
    ("DaemonSet", "gpupack-agent", "agent"),
]
OWN = (names.GPU, names.GPU_SHARE, names.GPU_PERCENT, names.GPU_MEMORY)
DEV = ("values-devcluster.yaml",)


def environment(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def volumes(rendered, kind, name):
    spec = rendered.objects[kind, name]["spec"]["template"]["spec"]
    return {volume["name"]: volume for volume in spec["volumes"]}


def scheduler_config(rendered):
    text = rendered.objects["ConfigMap", "gpupack-scheduler"]["data"]["scheduler.yaml"]
    return yaml.safe_load(text)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2])
def test_every_container_is_confined(render, part):
    context = render(files=DEV).container(*part)["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2])
def test_every_container_is_probed_and_says_what_it_needs(render, part):
    container = render().container(*part)
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}


@pytest.mark.parametrize("pod", ["gpupack-operator", "gpupack-scheduler"])
def test_operator_and_scheduler_never_run_as_root(render, pod):
    context = render().objects["Deployment", pod]["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_agent_is_privileged_only_where_it_opens_real_gpus(render):
    agent = ("DaemonSet", "gpupack-agent", "agent")
    assert render().container(*agent)["securityContext"]["privileged"] is True
    assert "host" not in volumes(render(files=DEV), *agent[:2])


def test_the_agent_sees_cgroups_and_the_host_without_the_right_to_write(render):
    mounts = render().container("DaemonSet", "gpupack-agent", "agent")["volumeMounts"]
    writable = {mount["name"] for mount in mounts if not mount.get("readOnly")}
    assert writable == {"device-plugins", "cdi", "run"}


def test_the_operator_gets_the_certificate_but_not_its_key(render):
    secret = volumes(render(), "Deployment", "gpupack-operator")["extender-ca"]["secret"]
    assert [item["key"] for item in secret["items"]] == ["ca.crt"]


def test_the_operators_token_opens_the_plan_api_alone(render):
    projected = volumes(render(), "Deployment", "gpupack-operator")["extender-token"]["projected"]
    (source,) = projected["sources"]
    assert source["serviceAccountToken"]["audience"] == names.PLAN_AUDIENCE


def test_names_are_spelled_as_in_the_code(render):
    config = scheduler_config(render())
    extender = environment(render().container("Deployment", "gpupack-scheduler", "extender"))
    operator = environment(render().container("Deployment", "gpupack-operator", "operator"))
    assert config["profiles"] == [{"schedulerName": names.SCHEDULER_NAME}]
    assert config["leaderElection"]["resourceName"] == names.SCHEDULER_LEASE
    assert extender["GPUPACK_LEADER_LEASE"] == names.SCHEDULER_LEASE
    assert operator["GPUPACK_LEASE_NAME"] == names.OPERATOR_LEASE


def test_the_extender_is_asked_about_every_resource_and_counts_it_alone(render):
    (extender,) = scheduler_config(render())["extenders"]
    assert extender["managedResources"] == [
        {"name": name, "ignoredByScheduler": True} for name in (*OWN, "nvidia.com/gpu")
    ]


@pytest.mark.parametrize("part", [PARTS[1], PARTS[3]], ids=lambda part: part[2])
def test_extender_and_agent_know_the_same_resources_of_other_plugins(render, part):
    rendered = render('observedResources=["nvidia.com/gpu","amd.com/gpu"]')
    told = environment(rendered.container(*part))["GPUPACK_OBSERVED_RESOURCES"]
    (extender,) = scheduler_config(rendered)["extenders"]
    managed = [resource["name"] for resource in extender["managedResources"]]
    assert told.split(",") == managed[len(OWN) :] == ["nvidia.com/gpu", "amd.com/gpu"]


def test_without_other_plugins_nothing_but_ours_is_managed(render):
    rendered = render("observedResources=[]")
    (extender,) = scheduler_config(rendered)["extenders"]
    assert [resource["name"] for resource in extender["managedResources"]] == list(OWN)
    assert environment(rendered.container(*PARTS[1]))["GPUPACK_OBSERVED_RESOURCES"] == ""


@pytest.mark.parametrize(("mode", "asked"), [("decisive", False), ("advisory", True)])
def test_the_extender_ranks_nodes_only_in_advisory_mode(render, mode, asked):
    rendered = render(f'scheduler.mode="{mode}"')
    (extender,) = scheduler_config(rendered)["extenders"]
    container = rendered.container("Deployment", "gpupack-scheduler", "extender")
    assert ("prioritizeVerb" in extender, "weight" in extender) == (asked, asked)
    assert environment(container)["GPUPACK_MODE"] == mode


def test_kube_scheduler_is_of_the_clusters_version_unless_told_otherwise(render):
    part = ("Deployment", "gpupack-scheduler", "kube-scheduler")
    told = render('scheduler.kubeScheduler.image.tag="v1.35.4"')
    assert render().container(*part)["image"] == "registry.k8s.io/kube-scheduler:v1.36.3"
    assert told.container(*part)["image"] == "registry.k8s.io/kube-scheduler:v1.35.4"


def test_one_tag_and_one_registry_name_all_our_images(render):
    rendered = render('image.registry="mirror.example"', 'image.tag="1.2"')
    images = {name: rendered.container(kind, pod, name)["image"] for kind, pod, name in PARTS}
    del images["kube-scheduler"]
    assert images == {name: f"mirror.example/gpupack/{name}:1.2" for name in images}


def test_a_new_scheduler_configuration_restarts_the_scheduler(render):
    def checksum(rendered):
        pod = rendered.objects["Deployment", "gpupack-scheduler"]["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    assert checksum(render()) != checksum(render('scheduler.mode="advisory"'))


def rules(rendered):
    roles = [o for (kind, _), o in rendered.objects.items() if kind in {"Role", "ClusterRole"}]
    return [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]


def test_no_rule_holds_for_everything(render):
    for _, rule in rules(render()):
        assert "*" not in str(rule)


def test_no_part_reads_secrets_or_changes_pods(render):
    for _, rule in rules(render()):
        assert "secrets" not in rule.get("resources", [])
        if "pods" in rule.get("resources", []):
            assert set(rule["verbs"]) <= {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("resource", "verb", "holder"),
    [
        ("pods/binding", "create", "gpupack-extender"),
        ("gpujobs/plan", "create", "gpupack-operator"),
        ("gpujobs/status", "update", "gpupack-operator"),
        ("gpunodes/status", "update", "gpupack-agent"),
    ],
)
def test_one_part_alone_may_do_what_is_its_own(render, resource, verb, holder):
    holders = {
        role
        for role, rule in rules(render())
        if resource in rule.get("resources", []) and verb in rule["verbs"]
    }
    assert holders == {holder}


def test_the_policy_guards_the_annotation_that_the_code_reads(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-devices"]
    for variable in policy["spec"]["variables"]:
        assert f"'{names.DEVICES_ANNOTATION}' in " in variable["expression"]


def test_agents_are_held_to_the_lease_that_the_code_beats(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-agents"]
    own = next(v for v in policy["spec"]["variables"] if v["name"] == "own")
    assert f"'{names.HEARTBEAT_LEASE_PREFIX}' + variables.node" in own["expression"]


def test_pods_are_checked_for_every_resource_and_the_schedulers_name(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-pods"]["spec"]
    variables = {entry["name"]: entry["expression"] for entry in policy["variables"]}
    assert f"name.startsWith('{names.GROUP}/')" in policy["matchConditions"][0]["expression"]
    assert f"!(name in {list(OWN)})" in variables["unknown"]
    assert f"{list(OWN[1:])}.filter" in variables["missing"].replace(" .", ".")
    wanted = f"object.spec.schedulerName == '{names.SCHEDULER_NAME}'"
    assert wanted in [validation["expression"] for validation in policy["validations"]]
