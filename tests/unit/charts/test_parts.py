# SPDX-License-Identifier: Apache-2.0
"""What the parts may do and what they are told, as far as it can be seen without a cluster."""

import json
from pathlib import Path

import pytest
import yaml

from gpupack_agent.mps.threads import NO_SOUND_THREADS, parse_sound_threads
from gpupack_apiserver.accounts.settings import CostSettings, parse_cost
from gpupack_apiserver.config import ConfigFile
from gpupack_crds import names
from gpupack_crds.vendors import parse_vendors
from gpupack_devcluster.build import KUBERNETES
from gpupack_extender import leader_endpoint
from gpupack_kubeclient.client import LARGEST_MIB
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
def test_every_container_is_confined(render, part):
    context = render(files=DEV).container(*part)["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("part", PARTS[:-1], ids=lambda part: part[2])
def test_every_container_that_serves_is_probed(render, part):
    container = render("api.enabled=true", "cost.enabled=true").container(*part)
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2])
def test_every_container_says_what_it_needs(render, part):
    container = render("api.enabled=true", "cost.enabled=true").container(*part)
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
    assert writable == {"device-plugins", "cdi", "run", "mps"}


def test_the_agent_asks_dcgm_exporter_only_where_that_is_said_and_with_no_further_right(render):
    agent = ("DaemonSet", "gpupack-agent", "agent")
    asked = render('agent.dcgmExporter={"url": "auto"}')
    environ = environment(asked.container(*agent))
    assert (environ["GPUPACK_DCGM_EXPORTER"], environ["GPUPACK_DCGM_NAMESPACES"]) == (
        "auto",
        "gpu-operator",
    )
    assert "GPUPACK_DCGM_EXPORTER" not in environment(render().container(*agent))
    role = ("ClusterRole", "gpupack-agent")
    assert asked.objects[role] == render().objects[role]


def test_mps_is_supervised_without_rights_and_by_no_upgrade_ended(render):
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
def test_mps_runs_where_there_are_gpus_and_it_is_wanted(render, given):
    rendered = render(**given) if given else render("shares.limits=false")
    assert ("DaemonSet", "gpupack-mps") not in rendered.objects


def test_hosts_are_checked_only_where_that_is_wanted_and_without_any_right(render):
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
        {"name": name, "ignoredByScheduler": True} for name in (*OWN, *SLICES, "nvidia.com/gpu")
    ]


@pytest.mark.parametrize("part", [PARTS[1], PARTS[3]], ids=lambda part: part[2])
def test_extender_and_agent_know_the_same_resources_of_other_plugins(render, part):
    rendered = render('observedResources=["nvidia.com/gpu","amd.com/gpu"]')
    told = environment(rendered.container(*part))["GPUPACK_OBSERVED_RESOURCES"]
    (extender,) = scheduler_config(rendered)["extenders"]
    managed = [resource["name"] for resource in extender["managedResources"]]
    assert told.split(",") == managed[len(OWN + SLICES) :] == ["nvidia.com/gpu", "amd.com/gpu"]


def test_operator_and_api_know_the_same_of_nodes_to_avoid(render):
    rendered = render("operator.avoidNodeSeconds=7")
    parts = (PARTS[0], PARTS[4])
    told = [environment(rendered.container(*each))["GPUPACK_AVOID_NODE_SECONDS"] for each in parts]
    assert told == ["7", "7"]


def vendors_of(rendered, *part):
    return parse_vendors(environment(rendered.container(*part))["GPUPACK_VENDORS"])


@pytest.mark.parametrize("part", [PARTS[0], PARTS[3]], ids=lambda part: part[2])
def test_operator_and_agent_are_told_the_table_of_vendors(render, part):
    vendors = vendors_of(render(), *part)
    assert vendors.of("amd.com/gpu").visible_devices == "ROCR_VISIBLE_DEVICES"
    assert vendors.driver_shows("nvidia.com/gpu")
    assert not vendors.driver_shows("huawei.com/Ascend910")
    taken_out = vendors_of(render("vendors.amd=null"), *part)
    assert taken_out.of("amd.com/gpu") is None


def sound_threads(render, value):
    told = environment(render(f"shares.soundThreads={value}").container(*AGENT))
    return parse_sound_threads(told["GPUPACK_SOUND_THREADS"])


def test_a_model_of_any_name_has_the_sound_threads_that_the_chart_says(render):
    name = """A "q" {{ .Values }} <b> '\\ \u00e9 \u0007"""
    found = sound_threads(render, json.dumps({name: [[1, 5], [7, 9]]}))
    assert found.ranges[name] == ((1, 5), (7, 9))
    assert found.ranges["NVIDIA H200"]


def test_an_administrator_can_say_that_nothing_is_known_of_any_model(render):
    assert sound_threads(render, "null") == NO_SOUND_THREADS


def test_a_vendor_of_ones_own_is_an_entry_more(render):
    mine = '{"resources": ["mine.example/npu"], "modelLabels": ["mine.example/model"]}'
    vendors = vendors_of(render(f"vendors.mine={mine}"), *PARTS[3])
    assert vendors.name_of("mine.example/npu") == "mine"
    assert vendors.name_of("amd.com/gpu") == "amd"


def test_the_variables_of_the_runtimes_of_observed_vendors_are_refused(render):
    amd = render('observedResources=["nvidia.com/gpu","amd.com/gpu"]').text
    assert "['NVIDIA_VISIBLE_DEVICES', 'AMD_VISIBLE_DEVICES']" in amd
    assert "ASCEND_VISIBLE_DEVICES'" not in amd
    assert "'AMD_VISIBLE_DEVICES'" not in render().text


def test_without_other_plugins_nothing_but_ours_is_managed(render):
    rendered = render("observedResources=[]")
    (extender,) = scheduler_config(rendered)["extenders"]
    assert [resource["name"] for resource in extender["managedResources"]] == [*OWN, *SLICES]
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
    assert render().container(*part)["image"] == f"registry.k8s.io/kube-scheduler:{KUBERNETES}"
    assert told.container(*part)["image"] == "registry.k8s.io/kube-scheduler:v1.35.4"


def test_a_version_of_kubernetes_that_names_no_image_is_refused(helm):
    short = ("--kube-version=1.36", "--set=image.registry=x")
    done = helm("template", "gpupack", str(CHART), *short)
    assert (done.returncode, "is no whole version" in done.stderr) == (1, True)


def test_one_tag_and_one_registry_name_all_our_images(render):
    on = ("api.enabled=true", "cost.enabled=true")
    rendered = render('image.registry="mirror.example"', 'image.tag="1.2"', *on)
    images = {name: rendered.container(kind, pod, name)["image"] for kind, pod, name in PARTS}
    del images["kube-scheduler"]
    assert images.pop("cost") == images["api"]
    assert images.pop("certificates") == images["operator"]
    assert images == {name: f"mirror.example/gpupack/{name}:1.2" for name in images}


def api_config(rendered, folder):
    """What the API reads of the file that the chart writes, changed fields only."""
    file = folder / "config.yaml"
    file.write_text(rendered.objects["ConfigMap", "gpupack-api"]["data"]["config.yaml"])
    return {each.field: each.after for each in ConfigFile(file, lambda _: None).reload()}


def test_the_api_reads_its_configuration_as_the_values_have_it(render, tmp_path):
    on = "api.enabled=true"
    assert api_config(render(on), tmp_path) == {}, "the defaults of both are the same"
    fields = 'api.config={"logLevel":"DEBUG","sampleSeconds":2.5,"callsAtOnce":100000,'
    fields += '"callsPerSecond":100000,"streamsPerUser":0}'
    assert api_config(render(on, fields), tmp_path) == {
        "log_level": "DEBUG",
        "sample_seconds": 2.5,
        "calls_at_once": 100_000,
        "calls_per_second": 100_000,
        "streams_per_user": 0,
    }


def test_a_new_configuration_of_the_api_restarts_nothing(render):
    on = "api.enabled=true"
    changed = render(on, 'api.config={"sampleSeconds":5}')
    deployment = "Deployment", "gpupack-api"
    assert changed.objects[deployment] == render(on).objects[deployment]


def test_a_new_scheduler_configuration_restarts_the_scheduler(render):
    def checksum(rendered):
        pod = rendered.objects["Deployment", "gpupack-scheduler"]["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    assert checksum(render()) != checksum(render('scheduler.mode="advisory"'))


@pytest.mark.parametrize("part", [*PARTS[:2], PARTS[3]], ids=lambda part: part[2])
def test_every_part_is_told_how_large_an_object_it_reads(render, part):
    by_default = environment(render().container(*part))["GPUPACK_LARGEST_OBJECT_MIB"]
    assert by_default == str(LARGEST_MIB)
    told = environment(render("largestObjectMib=64").container(*part))
    assert told["GPUPACK_LARGEST_OBJECT_MIB"] == "64"


@pytest.mark.parametrize("part", [PARTS[0], PARTS[3]], ids=lambda part: part[2])
def test_operator_and_agent_listen_nowhere_unless_metrics_are_asked_for(render, part):
    assert environment(render().container(*part))["GPUPACK_METRICS_PORT"] == "0"
    showing = render("metricsPort=9100").container(*part)
    assert environment(showing)["GPUPACK_METRICS_PORT"] == "9100"


def rules(rendered):
    roles = [o for (kind, _), o in rendered.objects.items() if kind in {"Role", "ClusterRole"}]
    return [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]


def test_no_rule_holds_for_everything(render):
    for _, rule in rules(render()):
        assert "*" not in str(rule)


def test_leases_are_renewed_before_other_calls_are_served(render):
    """The API server's own FlowSchema for that is about accounts of kube-system alone."""
    spec = render().objects["FlowSchema", "gpupack-leader-election"]["spec"]
    (rule,) = spec["rules"]
    accounts = {each["serviceAccount"]["name"] for each in rule["subjects"]}
    assert accounts == {"gpupack-scheduler", "gpupack-operator"}
    (resources,) = rule["resourceRules"]
    assert (resources["resources"], resources["namespaces"]) == (["leases"], ["gpupack-system"])
    assert spec["priorityLevelConfiguration"] == {"name": "leader-election"}


def test_the_chart_gives_people_no_right_by_itself(render):
    """GPUNodes name pods of all namespaces: who may read them is the administrator's to say.

    But for the API's summary, which names no tenant, and where the release is, in kube-public.
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


def test_client_certificates_are_taken_at_a_port_of_their_own(render):
    def ports(rendered):
        (service,) = [rendered.objects["Service", "gpupack-api"]]
        asked = environment(rendered.container("Deployment", "gpupack-api", "api"))
        return (
            {port["name"]: port["port"] for port in service["spec"]["ports"]},
            asked.get("GPUPACK_CLIENT_CERTIFICATES_PORT"),
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


def test_no_part_reads_secrets_but_its_own_and_queue_and_operator_alone_change_pods(render):
    more = {"gpupack-operator": {"create", "patch"}, "gpupack-extender": {"patch"}}
    # Keys of MPI workers, which the operator writes without ever reading one.
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


def test_the_queue_changes_no_part_of_a_pod_but_its_own_whatever_the_values_say(render):
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
    assert "variables.ours" in annotations["expression"]
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
def test_pods_wait_behind_the_gate_that_the_code_opens(render, values, gated):
    found = render(*values).objects.get(("MutatingAdmissionPolicy", "gpupack-gate"))
    assert (found is not None) == gated
    if found:
        (mutation,) = found["spec"]["mutations"]
        assert f"name: '{names.QUEUE_GATE}'" in mutation["applyConfiguration"]["expression"]
        assert found["spec"]["failurePolicy"] == "Ignore"


def test_that_the_operator_only_tries_and_ends_pods_is_enforced_whatever_the_values_say(render):
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
def test_one_part_alone_may_do_what_is_its_own(render, resource, verb, holder):
    holders = {
        role
        for role, rule in rules(render())
        if resource in rule.get("resources", []) and verb in rule["verbs"]
    }
    assert holders == {holder}


@pytest.mark.parametrize("enabled", [False, True])
def test_the_operator_may_ask_for_nodes_only_where_that_is_on(render, enabled):
    rendered = render(*(["provisioning.enabled=true"] if enabled else []))
    asked = [
        set(rule["verbs"])
        for _, rule in rules(rendered)
        if {"provisioningrequests", "podtemplates"} & set(rule.get("resources", []))
    ]
    assert asked == [{"get", "create", "delete"}] * (2 if enabled else 0)
    operator = rendered.container("Deployment", "gpupack-operator", "operator")
    told = {each["name"]: each.get("value") for each in operator["env"]}
    assert ("GPUPACK_PROVISIONING" in told) == enabled


def test_the_operator_reads_what_the_chart_says_of_asking_for_nodes(render):
    values = ("provisioning.enabled=true", 'provisioning.parameters={"zone": "a, b"}')
    operator = render(*values).container("Deployment", "gpupack-operator", "operator")
    told = {each["name"]: each["value"] for each in operator["env"] if "value" in each}
    read = Settings.from_environ(told | {"POD_NAME": "o"})
    assert read.provisioning == Provisioning(class_name=ATOMIC_CLASS, parameters={"zone": "a, b"})
    assert read.nodes_limits == NodesLimits()


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_replicas_share_no_node_where_that_can_be_and_leave_a_dead_one_within_seconds(render, part):
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
def test_replicas_wait_for_a_node_each_where_the_administrator_wants_that(render, part):
    pod = render(f'{part}.nodeEach="required"').objects["Deployment", f"gpupack-{part}"]
    apart = pod["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = apart.pop("requiredDuringSchedulingIgnoredDuringExecution")
    assert (term["topologyKey"], apart) == ("kubernetes.io/hostname", {})


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_of_two_replicas_one_may_be_away_and_of_one_there_is_nothing_to_say(render, part):
    two, one = render(), render(f"{part}.replicas=1")
    budget = two.objects["PodDisruptionBudget", f"gpupack-{part}"]["spec"]
    deployment = two.objects["Deployment", f"gpupack-{part}"]["spec"]
    assert (deployment["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert budget["selector"] == deployment["selector"]
    assert ("PodDisruptionBudget", f"gpupack-{part}") not in one.objects


def test_an_affinity_of_ones_own_replaces_the_charts(render):
    rendered = render('operator.affinity={"nodeAffinity":{}}')
    spec = rendered.objects["Deployment", "gpupack-operator"]["spec"]["template"]["spec"]
    assert spec["affinity"] == {"nodeAffinity": {}}


def test_the_plan_apis_service_leads_only_where_the_leader_says(render):
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
def test_the_clusters_own_namespaces_are_exempt_and_so_are_those_of_the_values(render, policy):
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
def test_a_number_lifts_no_job_above_others_unless_a_value_says_so(render, values, most):
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


def test_what_is_published_of_a_release_is_its_namespace_and_names_of_secrets(render):
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


def test_pods_with_gpus_have_classes_of_the_clusters_own_beside_its_parts_alone(render):
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

    def judged(policy):
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
    assert narrowing <= judged("gpupack-pods") & judged("gpupack-jobs")
    assert f"!variables.whole || variables.counts.all(number, !{too_many})" in judged(
        "gpupack-pods"
    )
    assert f"!variables.whole || {in_all}" in judged("gpupack-pods")


def test_no_gpujob_is_taken_where_the_operator_makes_none(render):
    objects = render().objects
    closed = (
        "request.operation != 'CREATE' || !(request.namespace in ['kube-system', 'gpupack-system'])"
    )
    for policy in ("gpupack-jobs", "gpupack-operator"):
        spec = objects["ValidatingAdmissionPolicy", policy]["spec"]
        assert closed in {validation["expression"] for validation in spec["validations"]}


def test_only_a_template_that_is_new_to_the_api_server_is_judged(render):
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


def test_every_policy_is_bound_and_only_those_about_templates_and_resources_warn(render):
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


def test_the_policy_guards_the_annotations_that_the_code_reads(render):
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


def test_agents_are_held_to_the_lease_that_the_code_beats(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-agents"]
    own = next(v for v in policy["spec"]["variables"] if v["name"] == "own")
    assert f"'{names.HEARTBEAT_LEASE_PREFIX}' + variables.node" in own["expression"]


def test_pods_are_checked_for_every_resource_and_the_schedulers_name(render):
    policy = render().objects["ValidatingAdmissionPolicy", "gpupack-pods"]["spec"]
    variables = {entry["name"]: entry["expression"] for entry in policy["variables"]}
    assert f"name.startsWith('{names.GROUP}/')" in policy["matchConditions"][0]["expression"]
    assert f"!(name in {list(OWN)} || name in {list(SLICES)})" in variables["unknown"]
    assert f"{list(OWN[1:])}.filter" in variables["missing"].replace(" .", ".")
    wanted = f"object.spec.schedulerName == '{names.SCHEDULER_NAME}'"
    assert wanted in [validation["expression"] for validation in policy["validations"]]


COST = ("api.enabled=true", "cost.enabled=true")


def test_the_accountant_is_told_prices_and_the_api_where_it_is(render):
    prices = {"A100-80GB": 2.1, "*": 1}
    rendered = render(*COST, f"cost.prices={json.dumps(prices)}", 'cost.currency="EUR"')
    told = environment(rendered.container("Deployment", "gpupack-cost", "cost"))
    assert parse_cost(told["GPUPACK_COST"]) == CostSettings(
        currency="EUR", prices=prices, retention_days=400
    )
    asked = environment(rendered.container("Deployment", "gpupack-api", "api"))
    assert asked["GPUPACK_COST_URL"] == "https://gpupack-cost.gpupack-system.svc"
    assert "GPUPACK_COST_URL" not in environment(
        render(COST[0]).container("Deployment", "gpupack-api", "api")
    )


def test_the_api_gets_nothing_of_the_accountants_certificate_but_its_ca(render):
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
def test_its_file_is_where_the_values_say(render, storage, volume, is_made):
    rendered = render(*COST, f"cost.storage={json.dumps(storage)}")
    data = volumes(rendered, "Deployment", "gpupack-cost")["data"]
    assert data == {"name": "data", **volume}
    assert (("PersistentVolumeClaim", "gpupack-cost") in rendered.objects) is is_made


def test_there_is_one_accountant_at_a_time(render):
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
def test_no_agent_lands_on_a_virtual_node(render, pod):
    spec = pod_specs(render("preflight.enabled=true"))[pod]
    assert terms(spec) == [{"matchExpressions": VIRTUAL}]


def test_an_affinity_of_ones_own_leaves_virtual_nodes_out_in_each_of_its_terms(render):
    pools = [{"key": "pool", "operator": "In", "values": [name]} for name in "ab"]
    alternatives = json.dumps([{"matchExpressions": [pool]} for pool in pools])
    where = "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    spec = pod_specs(render(f"agent.affinity.{where}={alternatives}"))[AGENTS[0]]
    assert terms(spec) == [{"matchExpressions": [pool, *VIRTUAL]} for pool in pools]


def test_a_label_of_excluded_nodes_can_be_taken_out(render):
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


def test_the_drivers_folder_reaches_all_who_look_for_it(render):
    rendered = render('agent.driverRoot="/run/nvidia/driver"', "preflight.enabled=true")
    for pod, name in (("gpupack-agent", "agent"), ("gpupack-mps", "mps")):
        told = environment(rendered.container("DaemonSet", pod, name))
        assert told["GPUPACK_DRIVER_ROOT"] == "/run/nvidia/driver"
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


def test_what_is_known_of_the_kubelet_reaches_agent_and_preflight(render):
    rendered = render(*ODD_KUBELET, "preflight.enabled=true")
    for pod, name in (("gpupack-agent", "agent"), ("gpupack-preflight", "preflight")):
        told = environment(rendered.container("DaemonSet", pod, name))
        assert KUBELET.items() <= told.items()
    policy = rendered.objects["ValidatingAdmissionPolicy", "gpupack-hosts"]
    assert "'/data/kubelet/'" in json.dumps(policy)


def test_an_agent_with_the_hosts_root_mounts_no_folder_that_some_kubelets_lack(render):
    assert "pod-resources" not in volumes(render(), "DaemonSet", "gpupack-agent")
    simulated = ('agent.inventory="simulated"', f"agent.simulated.nodes={json.dumps(GPUS)}")
    mounted = volumes(render(*simulated, *ODD_KUBELET), "DaemonSet", "gpupack-agent")
    assert mounted["pod-resources"]["hostPath"]["path"] == "/data/kubelet/pod-resources"
    assert mounted["device-plugins"]["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"


@pytest.mark.parametrize(
    ("pod", "name"), [("gpupack-operator", "operator"), ("gpupack-api", "api")]
)
def test_pods_that_a_part_makes_are_pulled_as_its_own_are(render, pod, name):
    rendered = render('image.pullSecrets=[{"name":"a"},{"name":"b"}]', 'image.pullPolicy="Always"')
    container = rendered.container("Deployment", pod, name)
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["GPUPACK_IMAGE_PULL_SECRETS"] == "a,b"
    assert variables["GPUPACK_IMAGE_PULL_POLICY"] == container["imagePullPolicy"] == "Always"


def test_every_pod_of_the_chart_names_the_pull_secrets_and_the_policy(render):
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
