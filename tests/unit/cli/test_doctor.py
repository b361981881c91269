# SPDX-License-Identifier: Apache-2.0
"""A working installation has no findings; each broken part is reported with a fix."""

import base64
import contextlib
import dataclasses
import datetime as dt
import ssl

import msgspec
import pytest
from aiohttp import web
from fake_api import ApiServer, connected
from self_signed import self_signed

from gpupack.cluster.release import Release
from gpupack_cli.commands.doctor import joined, skipped_text
from gpupack_cli.commands.quota import rows_of
from gpupack_cli.doctor import (
    agentless,
    communication,
    installed,
    inventories,
    nodes,
    parts,
    pending_pods,
    reading,
    secrets,
    views,
)
from gpupack_cli.doctor.checks import CHECKS, findings
from gpupack_cli.doctor.cluster_state import ClusterState, Probe, Read, ServedCertificate
from gpupack_cli.doctor.finding import Level, ok, skipped
from gpupack_cli.doctor.rest_call import call_rest_api
from gpupack_cli.errors import PermissionDenied, RestUnavailable, Unauthenticated
from gpupack_crds import generate
from gpupack_crds.kinds import GpuCohort, GpuNode, GpuQuota
from gpupack_kubeclient import objects

NOW = dt.datetime.now(dt.UTC)
KINDS = (generate.gpujob, generate.gpunode, generate.gpuquota, generate.gpucohort)
LABELS = {"app.kubernetes.io/name": "gpupack", "app.kubernetes.io/version": "0.2.0"}
POLICIES = (*installed.REQUIRED_POLICIES, *installed.OPTIONAL_POLICIES)


def built(kind, name="", **fields):
    metadata = {"name": name} | fields.pop("metadata", {})
    return msgspec.convert({"metadata": metadata} | fields, kind)


def named(kind, *names, **fields):
    return Read(tuple(built(kind, name, **fields) for name in names))


def lease(name, *, seconds_ago=1.0, duration=10, holder="holder-0_x"):
    renewed = (NOW - dt.timedelta(seconds=seconds_ago)).isoformat()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": renewed}
    return built(views.LeaseRenewal, name, spec=spec)


def part(name, ready=2, wanted=2, volumes=(), pulls=(), containers=()):
    pods = {"volumes": list(volumes), "imagePullSecrets": [{"name": each} for each in pulls]}
    pods["containers"] = list(containers)
    return built(
        views.Part,
        name,
        metadata={"labels": LABELS},
        spec={"replicas": wanted, "template": {"spec": pods}},
        status={"readyReplicas": ready},
    )


def agents(ready=1, wanted=1):
    status = {"desiredNumberScheduled": wanted, "numberReady": ready}
    return Read((built(views.Part, "gpupack-agent", metadata={"labels": LABELS}, status=status),))


def gpu_node(name="a", health="Healthy", **status):
    device = {"uuid": "GPU-0", "index": 0, "model": "H100", "memoryMiB": 1, "health": health}
    known = {"gpus": 1, "agentVersion": "0.2.0", "devices": [device]}
    return built(GpuNode, name, status=known | status)


REJECTED = {
    "type": "InventoryRejected",
    "status": "True",
    "reason": "DuplicateGpus",
    "message": "the node gets no work: its agent lists GPU-0",
    "lastTransitionTime": "2026-11-25T00:00:00Z",
}


RELEASE = Release("gpu-tools")


def serving(name):
    items = [{"key": "tls.crt"}, {"key": "tls.key"}]
    return {"name": "tls", "secret": {"secretName": name, "items": items}}


def scheduler(tag):
    volumes = [serving("gpupack-extender-certificate")]
    image = f"registry.k8s.io/kube-scheduler:{tag}"
    stock = {"name": "kube-scheduler", "image": image}
    return part("gpupack-scheduler", volumes=volumes, containers=[stock])


SCHEDULER = scheduler("v1.36.1")


def secret(folder):
    files = zip(("tls.crt", "tls.key"), self_signed(folder), strict=True)
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files}
    return built(views.Certificates, "gpupack-extender-certificate", data=data)


def same(folder):
    shown = ssl.PEM_cert_to_DER_cert(self_signed(folder)[0].read_text())
    return ServedCertificate(
        "gpupack-api-1", "gpupack-api-tls", in_secret=shown, in_handshake=shown
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Return a working installation; its certificate expires within the hour."""
    bindings = [built(views.AdmissionBinding, n, spec={"policyName": n}) for n in POLICIES]
    return ClusterState(
        release=RELEASE,
        now=NOW,
        version="0.2.0",
        server=views.ServerVersion(git_version="v1.36.3", major="1", minor="36+"),
        crds=Read(tuple(msgspec.convert(build(), views.Crd) for build in KINDS)),
        deployments=Read((part("gpupack-operator"), SCHEDULER, part("gpupack-api", 1, 1))),
        daemon_sets=agents(),
        pods=named(objects.Pod, "gpupack-operator-1"),
        leases=Read((lease("gpupack-operator"), lease("gpupack-scheduler"), lease("gpunode-a"))),
        policies=named(views.AdmissionPolicy, *POLICIES),
        bindings=Read(tuple(bindings)),
        priority_classes=named(objects.PriorityClass, "gpupack-worker", preemptionPolicy="Never"),
        secrets=Read((secret(tmp_path_factory.mktemp("secret")),)),
        nodes=named(objects.Node, "a"),
        gpu_nodes=Read((gpu_node(),)),
        metrics=Probe(401, "send a bearer token", by_component=True),
        rest=Probe(200, "ok", by_component=True),
        caller=Probe(200, by_component=True),
        served=Read((same(tmp_path_factory.mktemp("served")),)),
    )


def said(check, seen, level):
    return [each for each in check(seen) if each.level is level]


def test_a_working_installation_has_no_findings(sound):
    found = findings(sound)
    assert {each.level for each in found if each.check != "certificates"} == {Level.OK}
    assert {each.check for each in found} >= {"parts", "leaders", "versions", "GPUNodes"}


def test_every_failure_and_warning_has_a_fix(sound):
    empty = ClusterState(now=NOW, version="0.2.0", release=RELEASE)
    for seen in (sound, empty):
        for each in findings(seen):
            assert bool(each.fix) == (each.level in {Level.WARNING, Level.FAILED}), each


def test_without_permissions_all_checks_are_skipped(sound):
    refused = {
        field.name: Read(refused="bob may not")
        for field in dataclasses.fields(ClusterState)
        if isinstance(getattr(sound, field.name), Read)
    }
    no_leader = Probe(detail="gpupack-scheduler has no leader")
    seen = dataclasses.replace(
        sound, **refused, metrics=no_leader, rest=Probe(403, "bob may not"), caller=Probe()
    )
    assert {each.level for each in findings(seen)} == {Level.OK, Level.SKIPPED}
    assert [each.check for each in findings(seen) if each.level is Level.OK] == [
        "kubernetes version"
    ]


def changed_crd(crd, change):
    schema = msgspec.to_builtins(crd)
    change(schema["spec"]["versions"][0])
    return msgspec.convert(schema, views.Crd)


BROKEN = [
    (installed.kubernetes_version, {"server": views.ServerVersion(minor="33")}, "1.34 or newer"),
    (installed.kinds, {"crds": Read()}, "gpujobs.gpupack.dev is not installed"),
    (parts.parts, {"deployments": Read()}, "gpupack-operator is not installed"),
    (parts.parts, {"daemon_sets": Read()}, "gpupack-agent is not installed"),
    (parts.parts, {"daemon_sets": agents(1, 3)}, "ready on 1 of 3 nodes"),
    (parts.parts, {"daemon_sets": agents(0, 0)}, "no node gets an agent"),
    (parts.leaders, {"leases": Read()}, "gpupack-operator has no leader"),
    (
        parts.leaders,
        {"leases": Read((lease("gpupack-operator", seconds_ago=60), lease("gpupack-scheduler")))},
        "has not renewed its Lease for 1m",
    ),
    (installed.admission, {"policies": Read()}, "policy gpupack-jobs is missing"),
    (installed.admission, {"bindings": Read()}, "gpupack-jobs has no binding"),
    (installed.priority_class, {"priority_classes": Read()}, "no worker can start"),
    (
        installed.priority_class,
        {"priority_classes": named(objects.PriorityClass, "gpupack-worker")},
        "preemptionPolicy PreemptLowerPriority",
    ),
    (parts.metrics, {"metrics": Probe(503, "no endpoints")}, "does not answer: no endpoints"),
    (parts.rest, {"rest": Probe(503, "stale")}, "does not answer: stale"),
    (nodes.reports, {"gpu_nodes": Read()}, "no agent has reported any GPU"),
    (nodes.reports, {"leases": Read()}, "has never renewed its Lease"),
    (
        nodes.reports,
        {"leases": Read((lease("gpunode-a", seconds_ago=90, duration=40),))},
        "its agent does not renew its Lease",
    ),
    (nodes.reports, {"nodes": Read()}, "the Node no longer exists"),
    (
        nodes.reports,
        {"gpu_nodes": Read((gpu_node(staleSince="2026-11-25T00:00:00Z"),))},
        "its driver does not answer",
    ),
    (
        inventories.rejected,
        {"gpu_nodes": Read((gpu_node(conditions=[REJECTED]),))},
        "a: the node gets no work: its agent lists GPU-0",
    ),
    (nodes.health, {"gpu_nodes": Read((gpu_node(health="Failed"),))}, "GPU 0 of a is Failed"),
    (
        agentless.without_agent,
        {"nodes": named(objects.Node, "b", status={"allocatable": {"nvidia.com/gpu": "8"}})},
        "b have GPUs and no agent",
    ),
    (
        agentless.without_agent,
        {
            "nodes": named(
                objects.Node,
                "b",
                metadata={"name": "b", "labels": {"nvidia.com/gpu.present": "true"}},
            )
        },
        "b have GPUs and no agent",
    ),
]


@pytest.mark.parametrize(("check", "changes", "says"), BROKEN, ids=[row[2] for row in BROKEN])
def test_each_broken_part_is_reported(sound, check, changes, says):
    found = said(check, dataclasses.replace(sound, **changes), Level.FAILED)
    assert any(says in f"{each.message}; {each.fix}" for each in found), found


def test_one_quota_is_not_several(sound):
    seen = dataclasses.replace(sound, quotas=named(GpuQuota, "default"))
    [found] = nodes.quotas(seen)
    assert found.message == "1 quota, and no part of a spec is ignored"


def lacking(namespace, status="True"):
    condition = {
        "type": "CapacityMissing",
        "status": status,
        "reason": "ModelNotFound",
        "message": "no node has a GPU of model H1000",
        "lastTransitionTime": "2026-11-29T12:00:00Z",
    }
    metadata = {"name": "default", "namespace": namespace}
    return built(GpuQuota, metadata=metadata, status={"conditions": [condition]})


def test_quotas_that_the_cluster_cannot_meet_are_a_warning(sound):
    seen = dataclasses.replace(
        sound, quotas=Read((lacking("a"), lacking("b"), lacking("c", "False")))
    )
    (found,) = nodes.quotas(seen)
    assert found.level is Level.WARNING
    assert found.message == (
        "the cluster cannot meet the quota of a, b: no node has a GPU of model H1000"
    )
    [row] = rows_of(lacking("a"))
    assert row.problem == "no node has a GPU of model H1000"
    assert rows_of(lacking("c", "False"))[0].problem == ""


@pytest.mark.parametrize("name", ["gpupack-api", "gpupack-certificates", "gpupack-cost"])
def test_an_optional_part_that_is_scaled_to_0_is_named(sound, name):
    others = tuple(each for each in sound.deployments.items if each.metadata.name != name)
    seen = dataclasses.replace(sound, deployments=Read((*others, part(name, 0, 0))))
    [found] = said(parts.parts, seen, Level.FAILED)
    assert found.message == f"{name} is scaled to 0"


def tainted(name="b", *, effect="NoSchedule", labels=None, **taint):
    taints = [{"key": "dedicated", "value": "ml", "effect": effect} | taint]
    metadata = {"name": name, "labels": labels or {}}
    return built(objects.Node, name, metadata=metadata, spec={"taints": taints})


def tolerating(*tolerations):
    spec = {"template": {"spec": {"tolerations": list(tolerations)}}}
    return Read((built(views.Part, "gpupack-agent", metadata={"labels": LABELS}, spec=spec),))


GKE = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}


def test_a_taint_that_keeps_the_agent_away_is_reported_with_the_toleration(sound):
    seen = dataclasses.replace(
        sound,
        nodes=Read((tainted(labels=GKE), tainted("c", labels=GKE))),
        daemon_sets=tolerating({"key": "dedicated", "operator": "Equal", "value": "web"}),
    )
    (found,) = said(agentless.without_agent, seen, Level.FAILED)
    assert found.message == (
        "b, c have GPUs and no agent that reports them: it does not tolerate "
        "dedicated=ml:NoSchedule"
    )
    assert "add {key: dedicated, operator: Exists} to agent.tolerations" in found.fix


@pytest.mark.parametrize(
    ("toleration", "effect"),
    [
        ({"key": "dedicated", "operator": "Exists"}, "NoSchedule"),
        ({"key": "dedicated", "value": "ml", "effect": "NoSchedule"}, "NoSchedule"),
        ({"operator": "Exists", "effect": "NoExecute"}, "NoExecute"),
        ({"key": "other", "operator": "Exists"}, "PreferNoSchedule"),
    ],
)
def test_a_tolerated_taint_is_not_reported(sound, toleration, effect):
    node = tainted(effect=effect, labels=GKE)
    seen = dataclasses.replace(sound, nodes=Read((node,)), daemon_sets=tolerating(toleration))
    (found,) = said(agentless.without_agent, seen, Level.FAILED)
    assert "tolerate" not in found.message


def test_a_tainted_node_without_known_gpus_is_mentioned(sound):
    down = {"key": "node.kubernetes.io/network-unavailable"}
    nodes_ = Read((tainted(), tainted("c", **down)))
    seen = dataclasses.replace(sound, nodes=nodes_, daemon_sets=tolerating())
    (found,) = said(agentless.without_agent, seen, Level.OK)
    assert found.message.endswith("; taints keep the agent away from b")


def test_a_component_without_ready_pods_fails_and_with_too_few_warns(sound):
    none = dataclasses.replace(sound, deployments=Read((part("gpupack-operator", 0),)))
    assert any("none of 2" in each.message for each in said(parts.parts, none, Level.FAILED))
    few = dataclasses.replace(sound, deployments=Read((part("gpupack-operator", 1),)))
    assert any("1 of 2" in each.message for each in said(parts.parts, few, Level.WARNING))


@pytest.mark.parametrize(
    ("reason", "fix"), [("ImagePullBackOff", "image.registry"), ("CrashLoopBackOff", "logs p -c c")]
)
def test_a_pod_that_does_not_run_is_reported_with_a_fix(sound, reason, fix):
    state = {"waiting": {"reason": reason, "message": "m"}}
    pod = built(objects.Pod, "p", status={"containerStatuses": [{"name": "c", "state": state}]})
    (found,) = said(parts.pods, dataclasses.replace(sound, pods=Read((pod,))), Level.FAILED)
    assert reason in found.message
    assert fix in found.fix


def test_kinds_of_an_older_release_are_reported_with_a_missing_field(sound):
    def drop(version):
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["migLayouts"]

    older = [
        changed_crd(crd, drop) if "gpunodes" in crd.metadata.name else crd
        for crd in sound.crds.items
    ]
    (found,) = said(
        installed.kinds, dataclasses.replace(sound, crds=Read(tuple(older))), Level.FAILED
    )
    assert "gpunodes.gpupack.dev is older than this command: it lacks .spec.migLayouts" in (
        found.message
    )


def test_kinds_of_a_newer_release_are_a_warning(sound):
    def add(version):
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["later"] = {"type": "string"}

    newer = [changed_crd(crd, add) for crd in sound.crds.items]
    found = said(
        installed.kinds, dataclasses.replace(sound, crds=Read(tuple(newer))), Level.WARNING
    )
    assert len(found) == 4
    assert all(".spec.later" in each.message for each in found)


def test_a_disabled_policy_is_a_warning_with_its_chart_value(sound):
    left = Read(tuple(p for p in sound.policies.items if p.metadata.name != "gpupack-hosts"))
    (found,) = said(installed.admission, dataclasses.replace(sound, policies=left), Level.WARNING)
    assert "admission.protectHosts.enabled=true" in found.fix


def test_a_webhook_without_a_service_that_refuses_pods_is_reported(sound):
    def hook(resource, name):
        return built_webhook(resource, name)

    seen = dataclasses.replace(
        sound,
        webhooks=Read(
            (
                (hook("pods", "gone"), False),
                (hook("pods", "there"), True),
                (hook("widgets", "other"), False),
            )
        ),
    )
    (found,) = said(installed.webhooks, seen, Level.FAILED)
    assert "webhook gone" in found.message


def built_webhook(resource, name):
    return msgspec.convert(
        {"name": name, "rules": [{"apiGroups": [""], "resources": [resource]}]}, views.Webhook
    )


@pytest.mark.parametrize("tag", ["v1.35.9", "v1.37.0", "1.35.9", "v1.35.9-gke.100@sha256:00"])
def test_a_kube_scheduler_of_another_minor_version_than_the_cluster_is_reported(sound, tag):
    seen = dataclasses.replace(sound, deployments=Read((scheduler(tag),)))
    (found,) = said(parts.kube_scheduler, seen, Level.WARNING)
    assert f"is {tag.partition('@')[0]}, and the cluster runs v1.36.3" in found.message
    assert "helm upgrade" in found.fix


def test_a_kube_scheduler_whose_tag_is_no_version_is_skipped(sound):
    seen = dataclasses.replace(sound, deployments=Read((scheduler("ours"),)))
    assert said(parts.kube_scheduler, seen, Level.SKIPPED)


def test_nodes_without_mps_are_reported_where_shares_are_limited(sound):
    status = {"desiredNumberScheduled": 3, "numberReady": 1}
    mps = built(views.Part, "gpupack-mps", metadata={"labels": LABELS}, status=status)
    seen = dataclasses.replace(sound, daemon_sets=Read((*agents().items, mps)))
    (found,) = said(parts.parts, seen, Level.FAILED)
    assert "MPS is ready on 1 of 3 nodes" in found.message


def test_components_of_another_release_are_reported(sound):
    seen = dataclasses.replace(sound, gpu_nodes=Read((gpu_node(agentVersion="0.0.9"),)))
    (found,) = said(installed.versions, seen, Level.WARNING)
    assert "agent of a is 0.0.9" in found.message


@pytest.mark.parametrize(
    ("days", "level", "says"),
    [
        (-1, Level.WARNING, "expires on"),
        (1, Level.FAILED, "expired on"),
        (-40, Level.OK, "is valid until"),
    ],
)
def test_a_certificate_is_reported_before_it_expires(sound, days, level, says):
    seen = dataclasses.replace(sound, now=NOW + dt.timedelta(days=days))
    (found,) = secrets.certificates(seen)
    assert found.level is level
    assert says in found.message


def test_certificates_that_no_component_renews_are_reported(sound):
    own = sound.secrets.items[0]
    metadata = msgspec.structs.replace(own.metadata, labels=LABELS)
    charts = Read((msgspec.structs.replace(own, metadata=metadata),))
    seen = dataclasses.replace(sound, secrets=charts)
    (found,) = said(secrets.certificates, seen, Level.FAILED)
    assert "nothing issues or renews gpupack-extender-certificate" in found.message
    issuer = part("gpupack-certificates", 1, 1)
    there = Read((*sound.deployments.items, issuer))
    assert not said(
        secrets.certificates, dataclasses.replace(seen, deployments=there), Level.FAILED
    )


@pytest.mark.parametrize("data", [{}, {"tls.crt": "!"}, {"tls.crt": "cnViYmlzaA=="}])
def test_a_secret_without_a_certificate_is_broken(sound, data):
    broken = built(views.Certificates, "gpupack-extender-certificate", data=data)
    seen = dataclasses.replace(sound, secrets=Read((broken,)))
    (found,) = secrets.certificates(seen)
    assert found.level is Level.FAILED
    assert "patch secret gpupack-extender-certificate --type=merge" in found.fix


READINGS = {
    "name": "readings",
    "projected": {
        "sources": [
            {"secret": {"name": "gpupack-metrics-certificate", "items": [{"key": "ca.crt"}]}},
            {"secret": {"name": "gpupack-metrics-token", "items": [{"key": "token"}]}},
        ]
    },
}


def test_a_missing_secret_is_reported_with_the_parts_that_use_it(sound):
    api = part("gpupack-api", 1, 1, volumes=[serving("mine"), READINGS], pulls=["registry"])
    seen = dataclasses.replace(sound, deployments=Read((SCHEDULER, api)))
    found = list(secrets.secrets(seen))
    assert [(each.level, each.message.partition(" (")[0]) for each in found] == [
        (Level.FAILED, "Secret gpupack-metrics-certificate is missing"),
        (Level.FAILED, "Secret gpupack-metrics-token is missing"),
        (Level.FAILED, "Secret mine is missing"),
        (Level.WARNING, "Secret registry, for pulls of images, is missing"),
    ]
    assert "(gpupack-api): pods that use it cannot start" in found[0].message


def test_the_token_of_a_prometheus_is_needed_where_its_account_exists(sound):
    seen = dataclasses.replace(sound, accounts=named(objects.Object, "gpupack-metrics"))
    (found,) = secrets.secrets(seen)
    assert found.message.startswith("Secret gpupack-metrics-token is missing (Prometheus)")
    assert "helm upgrade" in found.fix


def test_a_secret_without_a_key_that_is_used_is_reported(sound):
    held = built(views.Certificates, "gpupack-extender-certificate", data={"tls.crt": "x"})
    seen = dataclasses.replace(sound, secrets=Read((held,)))
    (found,) = secrets.secrets(seen)
    assert found.message == "Secret gpupack-extender-certificate has no tls.key (gpupack-scheduler)"


def test_the_certificate_of_every_part_is_checked(sound, tmp_path):
    agent = part("gpupack-agent", volumes=[serving("gpupack-metrics-certificate")])
    held = secret(tmp_path)
    other = built(views.Certificates, "gpupack-metrics-certificate", data=held.data)
    seen = dataclasses.replace(sound, daemon_sets=Read((agent,)), secrets=Read((held, other)))
    assert [each.message.split()[3] for each in secrets.certificates(seen)] == [
        "gpupack-extender-certificate",
        "gpupack-metrics-certificate",
    ]


async def test_the_secrets_that_the_parts_name_are_read():
    server = ApiServer()
    server.put("/version", {"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
    parts_path = "/apis/apps/v1/namespaces/gpu-tools/deployments"
    server.put(
        f"{parts_path}/gpupack-api", msgspec.to_builtins(part("gpupack-api", volumes=[READINGS]))
    )
    for name in ("gpupack-metrics-token", "of-another-program"):
        path = f"/api/v1/namespaces/gpu-tools/secrets/{name}"
        server.put(path, {"metadata": {"name": name, "namespace": "gpu-tools"}})
    async with connected(server.app()) as (api, _):
        seen = await reading.read_cluster(api, "1.0", RELEASE)
    assert [each.metadata.name for each in seen.secrets.items] == ["gpupack-metrics-token"]


def waiting_pod(name, scheduler, limits):
    spec = {"schedulerName": scheduler, "containers": [{"resources": {"limits": limits}}]}
    return built(objects.Pod, metadata={"name": name, "namespace": "team"}, spec=spec)


def test_pods_with_gpupacks_gpus_and_another_scheduler_are_reported(sound):
    pods = (
        waiting_pod("lost", "default-scheduler", {"gpupack.dev/gpu": "1"}),
        waiting_pod("ours", "gpupack", {"gpupack.dev/gpu": "1"}),
        waiting_pod("none", "default-scheduler", {"cpu": "1"}),
    )
    seen = dataclasses.replace(sound, pending=Read(pods))
    (found,) = said(pending_pods.wrong_scheduler, seen, Level.FAILED)
    assert found.message.startswith("team/lost request")


def test_pods_with_gpus_of_a_missing_plugin_get_a_fix(sound):
    pods = (
        waiting_pod("lost", "default-scheduler", {"nvidia.com/gpu": "2"}),
        waiting_pod("ours", "gpupack", {"nvidia.com/gpu": "1"}),
    )
    seen = dataclasses.replace(sound, pending=Read(pods))
    (found,) = said(pending_pods.withheld_resources, seen, Level.FAILED)
    assert found.message.startswith("team/lost, team/ours request nvidia.com/gpu, which no node")
    assert "schedulerName: gpupack, and gpupack.dev/gpu: 2" in found.fix


def test_pods_of_gpupacks_scheduler_with_another_resource_name_get_a_fix(sound):
    pods = (waiting_pod("ours", "gpupack", {"nvidia.com/gpu": "1"}),)
    seen = dataclasses.replace(sound, pending=Read(pods))
    (found,) = said(pending_pods.withheld_resources, seen, Level.FAILED)
    assert found.message.startswith("team/ours request nvidia.com/gpu, which no node offers")
    assert "schedulerName" not in found.fix
    assert "write gpupack.dev/gpu: 1 in place of nvidia.com/gpu: 1" in found.fix


def test_pods_with_gpus_that_a_node_offers_are_not_reported(sound):
    pods = (waiting_pod("waits", "default-scheduler", {"nvidia.com/gpu": "2"}),)
    offering = named(objects.Node, "a", status={"allocatable": {"nvidia.com/gpu": "1"}})
    seen = dataclasses.replace(sound, pending=Read(pods), nodes=offering)
    assert said(pending_pods.withheld_resources, seen, Level.FAILED) == []


def test_a_quota_with_an_ineffective_part_is_a_warning(sound):
    quota = built(
        GpuQuota,
        metadata={"name": "default", "namespace": "team"},
        status={"problem": "there is no cohort x"},
    )
    seen = dataclasses.replace(sound, quotas=Read((quota,)), cohorts=named(GpuCohort, "c"))
    (found,) = said(nodes.quotas, seen, Level.WARNING)
    assert "team" in found.message


@pytest.mark.parametrize(
    ("cohorts", "there"), [(("lab", "prod"), "lab, prod"), ((), "none")], ids=["some", "none"]
)
def test_a_quota_with_a_missing_cohort_is_reported_with_a_fix(sound, cohorts, there):
    quota = built(
        GpuQuota,
        metadata={"name": "default", "namespace": "team"},
        spec={"cohort": "research"},
        status={"problem": "there is no GPUCohort research; one without limits counts instead"},
    )
    seen = dataclasses.replace(sound, quotas=Read((quota,)), cohorts=named(GpuCohort, *cohorts))
    (found,) = said(nodes.quotas, seen, Level.WARNING)
    assert found.fix == (
        "create GPUCohort research, or set spec.cohort to one of the existing: " + there
    )


def test_a_thousand_broken_nodes_are_one_line(sound):
    many = tuple(gpu_node(f"n{i}") for i in range(1000))
    seen = dataclasses.replace(
        sound, gpu_nodes=Read(many), nodes=named(objects.Node, *(f"n{i}" for i in range(1000)))
    )
    (found,) = said(nodes.reports, seen, Level.FAILED)
    assert "and 995 more" in found.message


def test_every_check_has_a_unique_name(sound):
    names = [next(iter(check(sound))).check for check in CHECKS]
    assert len(set(names)) == len(names)


def test_a_caller_that_the_rest_api_rejects_reads_how_to_get_a_token(sound):
    seen = dataclasses.replace(sound, caller=Probe(401, "send a bearer token", by_component=True))
    (found,) = said(parts.caller, seen, Level.WARNING)
    assert "send a bearer token" in found.message
    assert "kubectl create token ACCOUNT" in found.fix


class Paging(ApiServer):
    """An API server that lists pods in pages of two, whatever the limit."""

    def __init__(self, number):
        super().__init__()
        self.put("/version", {"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        self.pods = [waiting_pod(f"p{at}", "default-scheduler", {}) for at in range(number)]

    async def answer(self, request):
        if request.path != "/api/v1/pods":
            return await super().answer(request)
        assert request.query["fieldSelector"] == "status.phase=Pending"
        first = int(request.query.get("continue", 0))
        more = str(first + 2) if first + 2 < len(self.pods) else ""
        items = msgspec.to_builtins(self.pods[first : first + 2])
        return web.json_response(
            {"metadata": {"resourceVersion": "1", "continue": more}, "items": items}
        )


async def test_all_pages_of_pending_pods_are_read():
    async with connected(Paging(5).app()) as (api, _):
        seen = await reading.read_cluster(api, "1.0", RELEASE)
    assert [pod.metadata.name for pod in seen.pending.items] == ["p0", "p1", "p2", "p3", "p4"]


class Calls:
    """A session whose REST API gives these answers to a caller with only a certificate."""

    server = ""
    uses_certificate = True

    def __init__(self, error):
        self.error = error

    @contextlib.asynccontextmanager
    async def rest(self, _api):
        yield self

    async def get_bytes(self, _path):
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 200),
        (Unauthenticated("who?"), 401),
        (PermissionDenied("no"), 403),
        (RestUnavailable("away"), 0),
    ],
)
async def test_the_rest_api_is_called_with_the_callers_credentials(sound, error, status):
    assert (await call_rest_api(Calls(error), None, sound)).status == status


async def test_a_rest_api_that_is_off_is_not_called(sound):
    off = dataclasses.replace(sound, deployments=Read())
    probe = await call_rest_api(Calls(AssertionError("it was called")), None, off)
    assert (probe.status, probe.detail) == (0, "the REST API is off")


def test_skipped_checks_are_counted_at_the_end_with_the_reason():
    refused = "user bob cannot list resource pods"
    assert skipped_text([ok("parts", "well")]) == ""
    well = ok("parts", "well")
    assert skipped_text([well, skipped("pods", refused), skipped("leaders", refused)]) == (
        "2 of 3 checks were skipped (pods, leaders): you may not read their objects; "
        "`gpupack doctor` is for administrators of the cluster (docs/cli.md)"
    )
    assert skipped_text([well, skipped("pods", refused), skipped("REST API", "it is off")]) == (
        "2 of 3 checks were skipped (pods, REST API): their lines have the reasons; "
        "`gpupack doctor` is for administrators of the cluster (docs/cli.md)"
    )


def test_one_skipped_check_is_not_several():
    well = ok("parts", "well")
    assert skipped_text([well, skipped("REST API", "it is off")]) == (
        "1 of 2 checks was skipped (REST API): its line has the reason"
    )
    refused = "user bob cannot list resource pods"
    assert "(pods): you may not read its objects;" in skipped_text([well, skipped("pods", refused)])


def test_a_user_without_permissions_reads_that_nothing_was_checked():
    refused = 'deployments.apps is forbidden: User "bob" cannot list resource "deployments"'
    found = [
        ok("kubernetes version", "Kubernetes v1.36.3"),
        skipped("parts", refused),
        skipped("REST API", refused),
        skipped("GPUNodes", 'User "bob" cannot list resource "gpunodes"'),
    ]
    assert skipped_text(found).startswith(
        "nothing is known of the installation: 3 of 4 checks were skipped"
    )
    assert [each.check for each in joined(found)] == [
        "kubernetes version",
        "parts, REST API",
        "GPUNodes",
    ]


async def test_the_rest_api_is_called_by_a_caller_that_may_not_read_deployments(sound):
    tenant = dataclasses.replace(sound, deployments=Read(refused="bob may not"))
    probe = await call_rest_api(Calls(None), None, tenant)
    assert probe.by_component


@pytest.mark.parametrize(("number", "says"), [(1, "1 of 1 node"), (2, "2 of 2 nodes")])
def test_one_node_is_not_several(sound, number, says):
    seen = dataclasses.replace(sound, daemon_sets=agents(number, number))
    assert any(each.message == f"agents are ready on {says}" for each in parts.parts(seen))


def gpu_job(name, *, status="False", kind="FastCommunication", hours_ago=None):
    said = {"type": kind, "status": status, "reason": "NVLinkNotUsed", "message": "uses SHM"}
    seen = {"conditions": [said]}
    if hours_ago is not None:
        seen["finishedAt"] = (NOW - dt.timedelta(hours=hours_ago)).isoformat()
    return built(views.SeenGpuJob, metadata={"name": name, "namespace": "team"}, status=seen)


def test_gangs_that_do_not_use_nvlink_are_reported_for_a_day(sound):
    jobs = [
        gpu_job("runs"),
        gpu_job("ended", hours_ago=23),
        gpu_job("long-ended", hours_ago=25),
        gpu_job("fast", status="True"),
        gpu_job("failed", kind="Succeeded"),
    ]
    seen = dataclasses.replace(sound, gpu_jobs=Read(tuple(jobs)))
    (found,) = communication.slow_gangs(seen)
    assert found.level is Level.WARNING
    assert found.message == "team/runs, team/ended: uses SHM"
    assert "docs/communication.md" in found.fix
