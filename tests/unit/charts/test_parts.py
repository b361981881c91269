# SPDX-License-Identifier: Apache-2.0
"""Rights and settings of the components, as far as they are visible without a cluster."""

import json
from pathlib import Path

import pytest
import yaml

from gpupack_agent.mps.threads import NO_THREAD_PERCENTAGES, parse_thread_percentages
from gpupack_apiserver.accounts.settings import CostSettings, parse_cost
from gpupack_apiserver.config import ConfigFile
from gpupack_cli.doctor import installed
from gpupack_crds import names
from gpupack_crds.vendors import parse_vendors
from gpupack_devcluster.build import KUBERNETES
from gpupack_extender import leader_endpoint
from gpupack_kubeclient.client import DEFAULT_MAX_OBJECT_MIB
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.manifests.provisioning import ATOMIC_CLASS
from gpupack_operator.nodes_limits import NodesLimits
from gpupack_operator.settings import Settings
from gpupack_scheduler import limits
from gpupack_scheduler.requests import node_rules

CHART = Path(__file__).parents[3] / "charts/gpupack"

PARTS = [
    ("Deployment", "gpupack-operator", "operator"),
    ("Deployment", "gpupack-scheduler", "extender"),
    ("Deployment", "gpupack-scheduler", "kube-scheduler"),
    ("DaemonSet", "gpupack-agent", "agent"),
    ("Deployment", "gpupack-api", "api"),
    ("Deployment", "gpupack-cost", "cost"),
    ("Deployment", "gpupack-certificates", "certificates"),
]
AGENT = PARTS[3]
OWN = (names.GPU, names.GPU_SHARE, names.GPU_PERCENT, names.GPU_MEMORY)
DEV = ("values-devcluster.yaml",)
VALUES = yaml.safe_load((Path(__file__).parents[3] / "charts/gpupack/values.yaml").read_text())
SLICES = tuple(names.mig_resource(profile) for profile in VALUES["migProfiles"])


def environment(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def volumes(rendered, kind, name):
    spec = rendered.objects[kind, name]["spec"]["template"]["spec"]
    return {volume["name"]: volume for volume in spec["volumes"]}


def scheduler_config(rendered):
    text = rendered.objects["ConfigMap", "gpupack-scheduler"]["data"]["scheduler.yaml"]
    return yaml.safe_load(text)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2])
def test_every_container_has_a_restricted_security_context(render, part):
    context = render(files=DEV).container(*part)["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("part", PARTS[:-1], ids=lambda part: part[2])
def test_every_container_that_serves_has_probes(render, part):
    container = render("api.enabled=true", "cost.enabled=true").container(*part)
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2])
def test_every_container_has_resource_requests(render, part):
    container = render("api.enabled=true", "cost.enabled=true").container(*part)
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}


@pytest.mark.parametrize("pod", ["gpupack-operator", "gpupack-scheduler"])
def test_operator_and_scheduler_never_run_as_root(render, pod):
    context = render().objects["Deployment", pod]["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_agent_is_privileged_only_with_real_gpus(render):
    agent = ("DaemonSet", "gpupack-agent", "agent")
    assert render().container(*agent)["securityContext"]["privileged"] is True
    assert "host" not in volumes(render(files=DEV), *agent[:2])


def test_the_agent_mounts_cgroups_and_the_host_read_only(render):
    mounts = render().container("DaemonSet", "gpupack-agent", "agent")["volumeMounts"]
    writable = {mount["name"] for mount in mounts if not mount.get("readOnly")}
    assert writable == {"device-plugins", "cdi", "run", "mps"}


def test_the_agent_reads_dcgm_exporter_only_if_configured_and_without_more_rights(render):
    agent = ("DaemonSet", "gpupack-agent", "agent")
    enabled = render('agent.dcgmExporter={"url": "auto"}')
    environ = environment(enabled.container(*agent))
    assert (environ["GPUPACK_DCGM_EXPORTER"], environ["GPUPACK_DCGM_NAMESPACES"]) == (
        "auto",
        "gpu-operator",
    )
    assert "GPUPACK_DCGM_EXPORTER" not in environment(render().container(*agent))
    role = ("ClusterRole", "gpupack-agent")
    assert enabled.objects[role] == render().objects[role]


def test_the_mps_supervisor_has_no_rights_and_survives_upgrades(render):
    supervisor = render().objects["DaemonSet", "gpupack-mps"]["spec"]
    pod = supervisor["template"]["spec"]
    assert supervisor["updateStrategy"] == {"type": "OnDelete"}
    assert pod["automountServiceAccountToken"] is False
    bound = {
        subject["name"]
        for (kind, _), each in render().objects.items()
        if kind in {"RoleBinding", "ClusterRoleBinding"}
        for subject in each["subjects"]
    }
    assert "gpupack-mps" not in bound


@pytest.mark.parametrize("given", [{"files": DEV}, {}])
def test_mps_runs_with_real_gpus_if_limits_are_enabled(render, given):
    rendered = render(**given) if given else render("shares.limits=false")
    assert ("DaemonSet", "gpupack-mps") not in rendered.objects


def test_preflight_runs_only_if_enabled_and_without_rights(render):
    assert ("DaemonSet", "gpupack-preflight") not in render().objects
    rendered = render("preflight.enabled=true", 'agent.nodeSelector={"gpu": "true"}')
    pod = rendered.objects["DaemonSet", "gpupack-preflight"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    chosen = {"kubernetes.io/os": "linux", "gpu": "true"}
    assert (pod["automountServiceAccountToken"], pod["nodeSelector"]) == (False, chosen)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]
    (host,) = (mount for mount in container["volumeMounts"] if mount["name"] == "host")
    assert host["readOnly"]
    (node,) = (each for each in container["env"] if each["name"] == "NODE_NAME")
    assert node["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_the_operator_gets_the_extenders_ca_and_no_key(render):
    secret = volumes(render(), "Deployment", "gpupack-operator")["extender-ca"]["secret"]
    assert [item["key"] for item in secret["items"]] == ["ca.crt"]


def test_the_operators_token_is_valid_only_for_the_plan_api(render):
    projected = volumes(render(), "Deployment", "gpupack-operator")["extender-token"]["projected"]
    (source,) = projected["sources"]
    assert source["serviceAccountToken"]["audience"] == names.PLAN_AUDIENCE


def test_names_in_the_chart_match_the_code(render):
    config = scheduler_config(render())
    extender = environment(render().container("Deployment", "gpupack-scheduler", "extender"))
    operator = environment(render().container("Deployment", "gpupack-operator", "operator"))
    assert config["profiles"] == [{"schedulerName": names.SCHEDULER_NAME}]
    assert config["leaderElection"]["resourceName"] == names.SCHEDULER_LEASE
    assert extender["GPUPACK_LEADER_LEASE"] == names.SCHEDULER_LEASE
    assert operator["GPUPACK_LEASE_NAME"] == names.OPERATOR_LEASE


def test_kube_scheduler_leaves_every_resource_to_the_extender(render):
    (extender,) = scheduler_config(render())["extenders"]
    assert extender["managedResources"] == [
        {"name": name, "ignoredByScheduler": True} for name in (*OWN, *SLICES, "nvidia.com/gpu")
    ]


@pytest.mark.parametrize("part", [PARTS[1], PARTS[3]], ids=lambda part: part[2])
def test_extender_and_agent_get_the_same_observed_resources(render, part):
    rendered = render('observedResources=["nvidia.com/gpu","amd.com/gpu"]')
    variables = environment(rendered.container(*part))["GPUPACK_OBSERVED_RESOURCES"]
    (extender,) = scheduler_config(rendered)["extenders"]
    managed = [resource["name"] for resource in extender["managedResources"]]
    assert variables.split(",") == managed[len(OWN + SLICES) :] == ["nvidia.com/gpu", "amd.com/gpu"]


def test_operator_and_api_get_the_same_avoid_node_seconds(render):
    rendered = render("operator.avoidNodeSeconds=7")
    parts = (PARTS[0], PARTS[4])
    variables = [
        environment(rendered.container(*each))["GPUPACK_AVOID_NODE_SECONDS"] for each in parts
    ]
    assert variables == ["7", "7"]


def vendors_of(rendered, *part):
    return parse_vendors(environment(rendered.container(*part))["GPUPACK_VENDORS"])


@pytest.mark.parametrize("part", [PARTS[0], PARTS[3]], ids=lambda part: part[2])
def test_operator_and_agent_get_the_table_of_vendors(render, part):
    vendors = vendors_of(render(), *part)
    assert vendors.of("amd.com/gpu").visible_devices == "ROCR_VISIBLE_DEVICES"
    assert vendors.driver_shows("nvidia.com/gpu")
    assert not vendors.driver_shows("huawei.com/Ascend910")
    taken_out = vendors_of(render("vendors.amd=null"), *part)
    assert taken_out.of("amd.com/gpu") is None


def thread_percentages(render, value):
    variables = environment(render(f"shares.correctThreadPercentages={value}").container(*AGENT))
    return parse_thread_percentages(variables["GPUPACK_CORRECT_THREAD_PERCENTAGES"])


def test_thread_percentages_reach_the_agent_for_any_model_name(render):
    name = """A "q" {{ .Values }} <b> '\\ \u00e9 \u0007"""
    found = thread_percentages(render, json.dumps({name: [[1, 5], [7, 9]]}))
    assert found.ranges[name] == ((1, 5), (7, 9))
    assert found.ranges["NVIDIA H200"]


def test_null_thread_percentages_mean_none_for_any_model(render):
    assert thread_percentages(render, "null") == NO_THREAD_PERCENTAGES


def test_a_custom_vendor_is_added_to_the_table(render):
    mine = '{"resources": ["mine.example/npu"], "modelLabels": ["mine.example/model"]}'
    vendors = vendors_of(render(f"vendors.mine={mine}"), *PARTS[3])
    assert vendors.name_of("mine.example/npu") == "mine"
    assert vendors.name_of("amd.com/gpu") == "amd"


def test_the_variables_of_the_runtimes_of_observed_vendors_are_refused(render):
    amd = render('observedResources=["nvidia.com/gpu","amd.com/gpu"]').text
    assert "['NVIDIA_VISIBLE_DEVICES', 'AMD_VISIBLE_DEVICES']" in amd
    assert "ASCEND_VISIBLE_DEVICES'" not in amd
    assert "'AMD_VISIBLE_DEVICES'" not in render().text


def test_without_observed_resources_only_gpupacks_resources_are_managed(render):
    rendered = render("observedResources=[]")
    (extender,) = scheduler_config(rendered)["extenders"]
    assert [resource["name"] for resource in extender["managedResources"]] == [*OWN, *SLICES]
    assert environment(rendered.container(*PARTS[1]))["GPUPACK_OBSERVED_RESOURCES"] == ""


@pytest.mark.parametrize(("mode", "ranks"), [("decisive", False), ("advisory", True)])
def test_the_extender_ranks_nodes_only_in_advisory_mode(render, mode, ranks):
    rendered = render(f'scheduler.mode="{mode}"')
    (extender,) = scheduler_config(rendered)["extenders"]
    container = rendered.container("Deployment", "gpupack-scheduler", "extender")
    assert ("prioritizeVerb" in extender, "weight" in extender) == (ranks, ranks)
    assert environment(container)["GPUPACK_MODE"] == mode


def test_kube_scheduler_has_the_clusters_version_unless_a_tag_is_set(render):
    part = ("Deployment", "gpupack-scheduler", "kube-scheduler")
    tagged = render('scheduler.kubeScheduler.image.tag="v1.35.4"')
    assert render().container(*part)["image"] == f"registry.k8s.io/kube-scheduler:{KUBERNETES}"
    assert tagged.container(*part)["image"] == "registry.k8s.io/kube-scheduler:v1.35.4"


def test_an_incomplete_kubernetes_version_is_refused(helm):
    short = ("--kube-version=1.36", "--set=image.registry=x")
    done = helm("template", "gpupack", str(CHART), *short)
    assert (done.returncode, "is not a complete version" in done.stderr) == (1, True)


def test_registry_and_tag_apply_to_all_gpupack_images(render):
    on = ("api.enabled=true", "cost.enabled=true")
    rendered = render('image.registry="mirror.example"', 'image.tag="1.2"', *on)
    images = {name: rendered.container(kind, pod, name)["image"] for kind, pod, name in PARTS}
    del images["kube-scheduler"]
    assert images.pop("cost") == images["api"]
    assert images.pop("certificates") == images["operator"]
    assert images == {name: f"mirror.example/gpupack/{name}:1.2" for name in images}


def api_config(rendered, folder):
    """Return the fields of the chart's file that differ from the API's defaults."""
    file = folder / "config.yaml"
    file.write_text(rendered.objects["ConfigMap", "gpupack-api"]["data"]["config.yaml"])
    return {each.field: each.after for each in ConfigFile(file, lambda _: None).reload()}


def test_the_api_reads_the_configuration_of_the_values(render, tmp_path):
    on = "api.enabled=true"
    assert api_config(render(on), tmp_path) == {}, "the defaults of both are the same"
    fields = 'api.config={"logLevel":"DEBUG","sampleSeconds":2.5,"callBurst":100000,'
    fields += '"callsPerSecond":100000,"streamsPerUser":0}'
    assert api_config(render(on, fields), tmp_path) == {
        "log_level": "DEBUG",
        "sample_seconds": 2.5,
        "call_burst": 100_000,
        "calls_per_second": 100_000,
        "streams_per_user": 0,
    }


def test_a_changed_api_configuration_restarts_no_pod(render):
    on = "api.enabled=true"
    changed = render(on, 'api.config={"sampleSeconds":5}')
    deployment = "Deployment", "gpupack-api"
    assert changed.objects[deployment] == render(on).objects[deployment]


def test_a_changed_scheduler_configuration_restarts_the_scheduler(render):
    def checksum(rendered):
        pod = rendered.objects["Deployment", "gpupack-scheduler"]["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    assert checksum(render()) != checksum(render('scheduler.mode="advisory"'))


@pytest.mark.parametrize("part", [*PARTS[:2], PARTS[3]], ids=lambda part: part[2])
def test_every_component_gets_the_maximum_object_size(render, part):
    by_default = environment(render().container(*part))["GPUPACK_MAX_OBJECT_MIB"]
    assert by_default == str(DEFAULT_MAX_OBJECT_MIB)
    variables = environment(render("maxObjectMib=64").container(*part))
    assert variables["GPUPACK_MAX_OBJECT_MIB"] == "64"


@pytest.mark.parametrize("part", [PARTS[0], PARTS[3]], ids=lambda part: part[2])
def test_operator_and_agent_open_no_port_unless_metrics_are_enabled(render, part):
    assert environment(render().container(*part))["GPUPACK_METRICS_PORT"] == "0"
    showing = render("metricsPort=9100").container(*part)
    assert environment(showing)["GPUPACK_METRICS_PORT"] == "9100"


def rules(rendered):
    roles = [o for (kind, _), o in rendered.objects.items() if kind in {"Role", "ClusterRole"}]
    return [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]


def test_no_rule_has_a_wildcard(render):
    for _, rule in rules(render()):
        assert "*" not in str(rule)


def test_leases_are_renewed_before_other_calls_are_served(render):
    """Kubernetes' own FlowSchema for leader election covers only accounts of kube-system."""
    spec = render().objects["FlowSchema", "gpupack-leader-election"]["spec"]
    (rule,) = spec["rules"]
    accounts = {each["serviceAccount"]["name"] for each in rule["subjects"]}
    assert accounts == {"gpupack-scheduler", "gpupack-operator"}
    (resources,) = rule["resourceRules"]
    assert (resources["resources"], resources["namespaces"]) == (["leases"], ["gpupack-system"])
    assert spec["priorityLevelConfiguration"] == {"name": "leader-election"}


def test_the_chart_grants_users_only_the_summary_and_the_release(render):
    """GPUNodes name pods of all namespaces, so the administrator decides who may read them.

    Exceptions are the API's summary, which names no tenant, and the release in kube-public.
    """
    bindings = [o for (kind, _), o in render().objects.items() if kind.endswith("RoleBinding")]
    subjects = {
        (binding["roleRef"]["name"], subject["kind"], subject.get("namespace"))
        for binding in bindings
        for subject in binding["subjects"]
    }
    people = {each for each in subjects if each[1:] != ("ServiceAccount", "gpupack-system")}
    release = ("gpupack-release-reader", "Group", None)
    assert people == {("gpupack-api-viewer", "Group", None), release}
    viewer = [rule for role, rule in rules(render()) if role == "gpupack-api-viewer"]
    assert [rule["resources"] for rule in viewer] == [["gpunodes/summary"]]


CERTIFICATES = "api.clientCertificates.enabled=true"


def test_client_certificates_are_accepted_on_a_separate_port(render):
    def ports(rendered):
        (service,) = [rendered.objects["Service", "gpupack-api"]]
        variables = environment(rendered.container("Deployment", "gpupack-api", "api"))
        return (
            {port["name"]: port["port"] for port in service["spec"]["ports"]},
            variables.get("GPUPACK_CLIENT_CERTIFICATES_PORT"),
        )

    assert ports(render()) == ({"https": 443}, None)
    rendered = render(CERTIFICATES)
    assert ports(rendered) == ({"https": 443, "certificates": 8443}, "8445")
    container = rendered.container("Deployment", "gpupack-api", "api")
    listening = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert listening["certificates"] == 8445
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["port"] for probe in probes} == {"https"}


def test_the_api_has_a_right_in_kube_system_only_for_client_certificates(render):
    def there(rendered):
        return [
            o for o in rendered.objects.values() if o["metadata"].get("namespace") == "kube-system"
        ]

    assert there(render()) == []
    (binding,) = there(render(CERTIFICATES))
    assert (binding["kind"], binding["roleRef"]["kind"]) == ("RoleBinding", "Role")
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "gpupack-api", "namespace": "gpupack-system"}
    ]
    assert rules(render(CERTIFICATES)) == rules(render())


def test_components_read_only_their_own_secrets_and_only_extender_and_operator_change_pods(render):
    more = {"gpupack-operator": {"create", "patch"}, "gpupack-extender": {"patch"}}
    # Keys of MPI workers, which the operator writes and does not read.
    of_secrets = {
        "gpupack-operator": {"create", "delete"},
        "gpupack-certificates": {"get", "patch"},
    }
    for role, rule in rules(render()):
        if "secrets" in rule.get("resources", []):
            assert set(rule["verbs"]) == of_secrets[role]
            assert (role == "gpupack-certificates") == bool(rule.get("resourceNames"))
        if "pods" in rule.get("resources", []):
            assert set(rule["verbs"]) <= {"get", "list", "watch"} | more.get(role, set())


def test_a_policy_always_limits_what_the_scheduler_changes_in_pods(render):
    off = (
        "admission.checkPods=false",
        "admission.protectDevices=false",
        "admission.gatePods=false",
    )
    objects = render(*off).objects
    policy = objects["ValidatingAdmissionPolicy", "gpupack-scheduler"]["spec"]
    gated, unchanged, _, annotations = policy["validations"]
    assert (policy["failurePolicy"], names.QUEUE_GATE in gated["expression"]) == ("Fail", True)
    assert "object.spec.containers == oldObject.spec.containers" in unchanged["expression"]
    (ours, *_) = policy["variables"]
    assert ours["expression"] == str([names.PLACEMENT_ANNOTATION, names.PREEMPTION_ANNOTATION])
    assert "variables.ownAnnotations" in annotations["expression"]
    binding = objects["ValidatingAdmissionPolicyBinding", "gpupack-scheduler"]["spec"]
    assert binding["validationActions"] == ["Deny"]


@pytest.mark.parametrize(
    ("values", "gated"),
    [
        ((), True),
        (("admission.gatePods=true",), True),
        (("admission.gatePods=false",), False),
        (("admission.gatePods=true", 'scheduler.mode="advisory"'), False),
    ],
)
def test_pods_get_the_scheduling_gate_that_the_code_removes(render, values, gated):
    found = render(*values).objects.get(("MutatingAdmissionPolicy", "gpupack-gate"))
    assert (found is not None) == gated
    if found:
        (mutation,) = found["spec"]["mutations"]
        assert f"name: '{names.QUEUE_GATE}'" in mutation["applyConfiguration"]["expression"]
        assert found["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize(
    ("values", "translated"),
    [
        ((), True),
        (("admission.translateResources=false",), False),
        (("admission.gatePods=false",), False),
        (('scheduler.mode="advisory"',), False),
    ],
)
def test_only_pods_of_labelled_namespaces_are_translated(render, values, translated):
    found = render(*values).objects.get(("MutatingAdmissionPolicy", "gpupack-translate"))
    assert (found is not None) == translated
    if found:
        matched = found["spec"]["matchConstraints"]["namespaceSelector"]
        assert matched == {"matchLabels": {"gpupack.dev/translate-resources": "nvidia"}}


def test_a_policy_always_limits_the_operator_to_dry_runs_and_ends_of_pods(render):
    off = ("admission.checkPods=false", "admission.protectDevices=false")
    objects = render(*off).objects
    policy = objects["ValidatingAdmissionPolicy", "gpupack-operator-pods"]["spec"]
    tries, ends, of_gpujobs = (rule["expression"] for rule in policy["validations"])
    assert (policy["failurePolicy"], "dryRun" in tries) == ("Fail", True)
    assert "activeDeadlineSeconds" in ends
    assert "gpupack.dev/job-uid" in of_gpujobs
    binding = objects["ValidatingAdmissionPolicyBinding", "gpupack-operator-pods"]["spec"]
    assert binding["validationActions"] == ["Deny"]


@pytest.mark.parametrize(
    ("resource", "verb", "holder"),
    [
        ("pods/binding", "create", "gpupack-extender"),
        ("gpujobs/plan", "create", "gpupack-operator"),
        ("gpujobs/status", "update", "gpupack-operator"),
        ("gpunodes/status", "update", "gpupack-agent"),
    ],
)
def test_exactly_one_component_has_each_right(render, resource, verb, holder):
    holders = {
        role
        for role, rule in rules(render())
        if resource in rule.get("resources", []) and verb in rule["verbs"]
    }
    assert holders == {holder}


@pytest.mark.parametrize("enabled", [False, True])
def test_the_operator_may_request_nodes_only_with_provisioning_enabled(render, enabled):
    rendered = render(*(["provisioning.enabled=true"] if enabled else []))
    granted = [
        set(rule["verbs"])
        for _, rule in rules(rendered)
        if {"provisioningrequests", "podtemplates"} & set(rule.get("resources", []))
    ]
    assert granted == [{"get", "create", "delete"}] * (2 if enabled else 0)
    operator = rendered.container("Deployment", "gpupack-operator", "operator")
    variables = {each["name"]: each.get("value") for each in operator["env"]}
    assert ("GPUPACK_PROVISIONING" in variables) == enabled


def test_the_operator_reads_the_charts_provisioning_settings(render):
    values = ("provisioning.enabled=true", 'provisioning.parameters={"zone": "a, b"}')
    operator = render(*values).container("Deployment", "gpupack-operator", "operator")
    variables = {each["name"]: each["value"] for each in operator["env"] if "value" in each}
    read = Settings.from_environ(variables | {"POD_NAME": "o"})
    assert read.provisioning == Provisioning(class_name=ATOMIC_CLASS, parameters={"zone": "a, b"})
    assert read.nodes_limits == NodesLimits()


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_replicas_prefer_different_nodes_and_leave_a_dead_node_within_seconds(render, part):
    rendered = render(f"{part}.unreachableSeconds=7")
    pod = rendered.objects["Deployment", f"gpupack-{part}"]["spec"]["template"]
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    selector = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert term["podAffinityTerm"]["matchLabelKeys"] == ["pod-template-hash"]
    assert {each["key"]: each["tolerationSeconds"] for each in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready": 7,
        "node.kubernetes.io/unreachable": 7,
    }


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_replicas_require_different_nodes_if_configured(render, part):
    pod = render(f'{part}.podAntiAffinity="required"').objects["Deployment", f"gpupack-{part}"]
    apart = pod["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = apart.pop("requiredDuringSchedulingIgnoredDuringExecution")
    assert (term["topologyKey"], apart) == ("kubernetes.io/hostname", {})


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_a_disruption_budget_exists_only_with_two_replicas(render, part):
    two, one = render(), render(f"{part}.replicas=1")
    budget = two.objects["PodDisruptionBudget", f"gpupack-{part}"]["spec"]
    deployment = two.objects["Deployment", f"gpupack-{part}"]["spec"]
    assert (deployment["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert budget["selector"] == deployment["selector"]
    assert ("PodDisruptionBudget", f"gpupack-{part}") not in one.objects


def test_a_custom_affinity_replaces_the_default(render):
    rendered = render('operator.affinity={"nodeAffinity":{}}')
    spec = rendered.objects["Deployment", "gpupack-operator"]["spec"]["template"]["spec"]
    assert spec["affinity"] == {"nodeAffinity": {}}


def test_the_service_of_the_plan_api_selects_only_the_leader(render):
    rendered = render()
    selector = rendered.objects["Service", "gpupack-extender"]["spec"]["selector"]
    pod = rendered.objects["Deployment", "gpupack-scheduler"]["spec"]["template"]
    assert not selector.items() <= pod["metadata"]["labels"].items()
    assert leader_endpoint.SERVICE == "gpupack-extender"
    granted = [rule for _, rule in rules(rendered) if "endpointslices" in rule.get("resources", [])]
    named = {verb: rule.get("resourceNames") for rule in granted for verb in rule["verbs"]}
    assert named == {
        "create": None,
        "get": [leader_endpoint.SERVICE],
        "update": [leader_endpoint.SERVICE],
        "delete": [leader_endpoint.SERVICE],
    }


@pytest.mark.parametrize("policy", ["gpupack-hosts", "gpupack-host-annotations"])
def test_host_policies_exempt_the_release_and_the_namespaces_of_the_values(render, policy):
    rendered = render('admission.protectHosts.exemptNamespaces=["monitoring","kube-system"]')
    constraints = rendered.objects["ValidatingAdmissionPolicy", policy]["spec"]["matchConstraints"]
    by_name, by_label = constraints["namespaceSelector"]["matchExpressions"]
    assert by_name["values"] == ["gpupack-system", "monitoring", "kube-system"]
    assert (by_label["key"], by_label["operator"], by_label["values"]) == (
        "pod-security.kubernetes.io/enforce",
        "NotIn",
        ["privileged"],
    )


@pytest.mark.parametrize(("values", "most"), [((), 0), (("admission.maxPriority=7",), 7)])
def test_a_priority_number_is_limited_by_max_priority(render, values, most):
    rendered = render("api.enabled=true", *values)
    policy = rendered.objects["ValidatingAdmissionPolicy", "gpupack-jobs"]
    bound, *_ = policy["spec"]["validations"]
    assert bound["expression"] == f"variables.kept || variables.priority <= {most}"
    assert f"spec.priority is at most {most} on this cluster" in bound["messageExpression"]
    assert "spec.priorityClassName" in bound["messageExpression"]
    assert "admission.maxPriority" in bound["messageExpression"]
    for deployment, name in (
        ("gpupack-operator", "operator"),
        ("gpupack-scheduler", "extender"),
        ("gpupack-api", "api"),
    ):
        container = rendered.container("Deployment", deployment, name)
        assert {"name": "GPUPACK_MAX_PRIORITY", "value": str(most)} in container["env"]


def test_only_namespace_and_secret_names_of_the_release_are_published(render):
    objects = render("api.enabled=true").objects
    (published,) = (
        each
        for each in objects.values()
        if each["metadata"].get("namespace") == "kube-public" and each["kind"] == "ConfigMap"
    )
    assert set(published["data"]) == {"namespace", "extenderCertificate", "apiCertificate"}
    reader = objects["Role", "gpupack-release-reader"]
    assert reader["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]


def test_without_saved_logs_the_operator_reads_no_log(render):
    def granted(rendered):
        return {
            resource
            for role, rule in rules(rendered)
            if role.startswith("gpupack-operator")
            for resource in rule.get("resources", [])
        }

    assert {"pods/log", "configmaps"} <= granted(render())
    without = render("operator.savedLogs=false")
    assert not {"pods/log", "configmaps"} & granted(without)
    variables = environment(without.container("Deployment", "gpupack-operator", "operator"))
    assert variables["GPUPACK_SAVED_LOGS"] == "false"


def test_only_system_namespaces_may_use_kubernetes_priority_classes_for_gpu_pods(render):
    objects = render('admission.protectHosts.exemptNamespaces=["gpu-tools"]').objects
    validations = objects["ValidatingAdmissionPolicy", "gpupack-pods"]["spec"]["validations"]
    (bound,) = (each for each in validations if "spec.?priority" in each["expression"])
    assert bound["expression"] == (
        "object.spec.?priority.orValue(0) <= 1000000000 "
        "|| request.namespace in ['kube-system', 'gpupack-system', 'gpu-tools']"
    )
    assert "preemptionPolicy Never" in bound["messageExpression"]


def test_policies_and_the_extender_have_the_same_bounds(render):
    objects = render().objects

    def validations(policy):
        spec = objects["ValidatingAdmissionPolicy", policy]["spec"]
        return {validation["expression"] for validation in spec["validations"]}

    narrowing = {
        f"variables.conditions <= {node_rules.MAX_CONDITIONS}",
        f"variables.values <= {node_rules.MAX_VALUES}",
    }
    too_many = f"quantity(number).isGreaterThan(quantity('{limits.MAX_GPUS}'))"
    in_all = (
        f"variables.counts.map(number, quantity(number).asInteger()).sum() <= {limits.MAX_GPUS}"
    )
    assert narrowing <= validations("gpupack-pods") & validations("gpupack-jobs")
    assert f"!variables.whole || variables.counts.all(number, !{too_many})" in validations(
        "gpupack-pods"
    )
    assert f"!variables.whole || {in_all}" in validations("gpupack-pods")


def test_gpujobs_are_refused_in_system_namespaces(render):
    objects = render().objects
    closed = (
        "request.operation != 'CREATE' || !(request.namespace in ['kube-system', 'gpupack-system'])"
    )
    for policy in ("gpupack-jobs", "gpupack-operator"):
        spec = objects["ValidatingAdmissionPolicy", policy]["spec"]
        assert closed in {validation["expression"] for validation in spec["validations"]}


def test_only_a_changed_template_is_validated(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-jobs"]["spec"]
    variables = {entry["name"]: entry["expression"] for entry in policy["variables"]}
    template = "spec.?template.orValue({})"
    assert variables["template"] == f"dyn(object).{template}"
    kept = f"oldObject != null && dyn(oldObject).{template} == variables.template"
    assert variables["templateKept"] == kept
    assert variables["judged"] == "variables.templateKept ? dyn({}) : variables.template"
    assert variables["pod"] == "variables.judged.?spec.orValue({})"
    for name in ("terms", "near", "spread", "parts"):
        assert "object" not in variables[name]


def test_every_policy_is_bound_and_only_two_of_them_warn(render):
    objects = render().objects
    policies = {name for kind, name in objects if kind == "ValidatingAdmissionPolicy"}
    bindings = {
        item["spec"]["policyName"]: item["spec"]["validationActions"]
        for (kind, _), item in objects.items()
        if kind == "ValidatingAdmissionPolicyBinding"
    }
    assert set(bindings) == policies
    warn = {name: actions for name, actions in bindings.items() if actions != ["Deny"]}
    assert warn == {"gpupack-workloads": ["Warn"], "gpupack-withheld": ["Warn"]}


def test_the_devices_policy_protects_the_annotations_that_the_code_reads(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-devices"]
    (changed,) = policy["spec"]["variables"]
    ours = [
        names.DEVICES_ANNOTATION,
        names.WORKERS_ANNOTATION,
        names.GANG_MEMORY_ANNOTATION,
        names.PLACEMENT_ANNOTATION,
        names.PREEMPTION_ANNOTATION,
    ]
    assert changed["expression"].startswith(f"{ours}.filter(")


def test_agents_may_only_write_the_lease_that_the_code_renews(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-agents"]
    own = next(v for v in policy["spec"]["variables"] if v["name"] == "own")
    assert f"'{names.HEARTBEAT_LEASE_PREFIX}' + variables.node" in own["expression"]


def test_the_pods_policy_covers_every_resource_and_the_scheduler_name(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-pods"]["spec"]
    variables = {entry["name"]: entry["expression"] for entry in policy["variables"]}
    assert f"name.startsWith('{names.GROUP}/')" in policy["matchConditions"][0]["expression"]
    assert f"!(name in {list(OWN)} || name in {list(SLICES)})" in variables["unknown"]
    assert f"{list(OWN[1:])}.filter" in variables["missing"].replace(" .", ".")
    wanted = f"object.spec.schedulerName == '{names.SCHEDULER_NAME}'"
    assert wanted in [validation["expression"] for validation in policy["validations"]]


COST = ("api.enabled=true", "cost.enabled=true")


def test_the_cost_service_gets_prices_and_the_api_gets_its_url(render):
    prices = {"A100-80GB": 2.1, "*": 1}
    rendered = render(*COST, f"cost.prices={json.dumps(prices)}", 'cost.currency="EUR"')
    variables = environment(rendered.container("Deployment", "gpupack-cost", "cost"))
    assert parse_cost(variables["GPUPACK_COST"]) == CostSettings(
        currency="EUR", prices=prices, retention_days=400
    )
    api_variables = environment(rendered.container("Deployment", "gpupack-api", "api"))
    assert api_variables["GPUPACK_COST_URL"] == "https://gpupack-cost.gpupack-system.svc"
    assert "GPUPACK_COST_URL" not in environment(
        render(COST[0]).container("Deployment", "gpupack-api", "api")
    )


def test_the_api_gets_only_the_ca_of_the_cost_services_certificate(render):
    mounted = volumes(render(*COST), "Deployment", "gpupack-api")["cost"]["secret"]
    assert mounted["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


@pytest.mark.parametrize(
    ("storage", "volume", "is_made"),
    [
        ({}, {"emptyDir": {"sizeLimit": "4Gi"}}, False),
        ({"size": "8Gi"}, {"persistentVolumeClaim": {"claimName": "gpupack-cost"}}, True),
        (
            {"existingClaim": "mine", "size": "8Gi"},
            {"persistentVolumeClaim": {"claimName": "mine"}},
            False,
        ),
    ],
)
def test_the_cost_services_file_is_on_the_volume_of_the_values(render, storage, volume, is_made):
    rendered = render(*COST, f"cost.storage={json.dumps(storage)}")
    data = volumes(rendered, "Deployment", "gpupack-cost")["data"]
    assert data == {"name": "data", **volume}
    assert (("PersistentVolumeClaim", "gpupack-cost") in rendered.objects) is is_made


def test_at_most_one_cost_service_runs(render):
    spec = render(*COST).objects["Deployment", "gpupack-cost"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


AGENTS = [
    ("DaemonSet", "gpupack-agent"),
    ("DaemonSet", "gpupack-mps"),
    ("DaemonSet", "gpupack-preflight"),
]
VIRTUAL = [
    {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]},
    {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]},
    {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet", "kwok"]},
]


def pod_specs(rendered):
    return {
        key: item["spec"]["template"]["spec"]
        for key, item in rendered.objects.items()
        if key[0] in {"Deployment", "DaemonSet", "Job", "StatefulSet"}
    }


@pytest.mark.parametrize("values", [(), ('operator.nodeSelector={"pool":"a"}',)])
def test_every_pod_runs_on_linux(render, values):
    everything = ("api.enabled=true", "cost.enabled=true", "preflight.enabled=true")
    specs = pod_specs(render(*everything, *values))
    assert len(specs) == 8
    for key, spec in specs.items():
        assert spec["nodeSelector"].get("kubernetes.io/os") == "linux", key
    wanted = {"pool": "a"} if values else {}
    chosen = specs["Deployment", "gpupack-operator"]["nodeSelector"]
    assert chosen == {"kubernetes.io/os": "linux", **wanted}


def terms(spec):
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


@pytest.mark.parametrize("pod", AGENTS, ids=lambda pod: pod[1])
def test_no_agent_runs_on_a_virtual_node(render, pod):
    spec = pod_specs(render("preflight.enabled=true"))[pod]
    assert terms(spec) == [{"matchExpressions": VIRTUAL}]


def test_a_custom_affinity_excludes_virtual_nodes_in_every_term(render):
    pools = [{"key": "pool", "operator": "In", "values": [name]} for name in "ab"]
    alternatives = json.dumps([{"matchExpressions": [pool]} for pool in pools])
    where = "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    spec = pod_specs(render(f"agent.affinity.{where}={alternatives}"))[AGENTS[0]]
    assert terms(spec) == [{"matchExpressions": [pool, *VIRTUAL]} for pool in pools]


def test_a_label_of_excluded_nodes_can_be_removed(render):
    spec = pod_specs(render("agent.excludedNodes.type=null"))[AGENTS[0]]
    assert terms(spec) == [{"matchExpressions": VIRTUAL[:2]}]
    none = ("eks\\.amazonaws\\.com/compute-type", "liqo\\.io/type", "type")
    spec = pod_specs(render(*(f"agent.excludedNodes.{label}=null" for label in none)))[AGENTS[0]]
    assert "affinity" not in spec


@pytest.mark.parametrize(
    ("taint", "tolerated"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "sku", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}, True),
        ({"key": "repair", "effect": "NoExecute"}, True),
        ({"key": "virtual-kubelet.io/provider", "value": "azure", "effect": "NoSchedule"}, False),
        (
            {
                "key": "eks.amazonaws.com/compute-type",
                "value": "fargate",
                "effect": "NoSchedule",
            },
            False,
        ),
        ({"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}, False),
    ],
    ids=lambda each: each["key"] if isinstance(each, dict) else "",
)
def test_the_agent_tolerates_taints_of_gpu_nodes_and_of_control_planes(render, taint, tolerated):
    def fits(toleration):
        same_key = toleration.get("key") in {None, taint["key"]}
        same_effect = toleration.get("effect") in {None, taint["effect"]}
        is_any = toleration.get("operator") == "Exists"
        return same_key and same_effect and (is_any or toleration["value"] == taint.get("value"))

    spec = pod_specs(render())[AGENTS[0]]
    assert any(map(fits, spec["tolerations"])) == tolerated


def test_every_component_that_needs_the_driver_root_gets_it(render):
    rendered = render('agent.driverRoot="/run/nvidia/driver"', "preflight.enabled=true")
    for pod, name in (("gpupack-agent", "agent"), ("gpupack-mps", "mps")):
        variables = environment(rendered.container("DaemonSet", pod, name))
        assert variables["GPUPACK_DRIVER_ROOT"] == "/run/nvidia/driver"
    preflight = rendered.container("DaemonSet", "gpupack-preflight", "preflight")
    assert "--driver-root=/run/nvidia/driver" in preflight["args"]


GPUS = [{"match": "*", "devices": [{"model": "H200", "memoryMiB": 1000}]}]
KUBELET = {
    "GPUPACK_KUBELET_ROOT_DIR": "/data/kubelet",
    "GPUPACK_KUBELET_CGROUP_ROOT": "/odd",
    "GPUPACK_KUBELET_CGROUP_DRIVER": "systemd",
    "GPUPACK_KUBELET_RUNTIME_ENDPOINT": "unix:///run/odd.sock",
}
ODD_KUBELET = (
    'kubelet.rootDir="/data/kubelet"',
    'kubelet.cgroupRoot="/odd"',
    'kubelet.cgroupDriver="systemd"',
    'kubelet.runtimeEndpoint="unix:///run/odd.sock"',
)


def test_agent_and_preflight_get_the_kubelet_settings(render):
    rendered = render(*ODD_KUBELET, "preflight.enabled=true")
    for pod, name in (("gpupack-agent", "agent"), ("gpupack-preflight", "preflight")):
        variables = environment(rendered.container("DaemonSet", pod, name))
        assert KUBELET.items() <= variables.items()
    policy = rendered.objects["ValidatingAdmissionPolicy", "gpupack-hosts"]
    assert "'/data/kubelet/'" in json.dumps(policy)


def test_an_agent_with_the_hosts_root_mounts_no_kubelet_folder(render):
    assert "pod-resources" not in volumes(render(), "DaemonSet", "gpupack-agent")
    simulated = ('agent.inventory="simulated"', f"agent.simulated.nodes={json.dumps(GPUS)}")
    mounted = volumes(render(*simulated, *ODD_KUBELET), "DaemonSet", "gpupack-agent")
    assert mounted["pod-resources"]["hostPath"]["path"] == "/data/kubelet/pod-resources"
    assert mounted["device-plugins"]["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"


@pytest.mark.parametrize(
    ("pod", "name"), [("gpupack-operator", "operator"), ("gpupack-api", "api")]
)
def test_components_that_create_pods_get_pull_policy_and_secrets(render, pod, name):
    rendered = render('image.pullSecrets=[{"name":"a"},{"name":"b"}]', 'image.pullPolicy="Always"')
    container = rendered.container("Deployment", pod, name)
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["GPUPACK_IMAGE_PULL_SECRETS"] == "a,b"
    assert variables["GPUPACK_IMAGE_PULL_POLICY"] == container["imagePullPolicy"] == "Always"


def test_every_pod_of_the_chart_has_the_pull_secrets_and_the_pull_policy(render):
    rendered = render(
        'image.pullSecrets=[{"name":"a"}]',
        'image.pullPolicy="Always"',
        "cost.enabled=true",
        "preflight.enabled=true",
    )
    pods = {
        name: each["spec"]["template"]["spec"]
        for name, each in rendered.objects.items()
        if "template" in each.get("spec", {})
    }
    assert {name for _, name in pods} >= {"gpupack-cost", "gpupack-mps", "gpupack-preflight"}
    for pod in pods.values():
        assert pod["imagePullSecrets"] == [{"name": "a"}]
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        assert {each["imagePullPolicy"] for each in containers} == {"Always"}


def test_the_doctor_knows_every_admission_policy(render):
    known = {*installed.REQUIRED_POLICIES, *installed.OPTIONAL_POLICIES}
    rendered = render().objects
    assert {name for kind, name in rendered if kind == "ValidatingAdmissionPolicy"} == known
