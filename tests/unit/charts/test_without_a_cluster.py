# SPDX-License-Identifier: Apache-2.0
"""Manifests that are rendered without a cluster, as by Argo CD and `helm template`."""

import pathlib

import pytest

from gpupack_devcluster.build import KUBERNETES
from gpupack_operator.certificates.certificate_requests import parse_certificate_requests

CHART = pathlib.Path(__file__).parents[3] / "charts/gpupack"
CLUSTER = ("apiregistration.k8s.io/v1", "crd.projectcalico.org/v1")
"""API versions that a cluster serves: one that each has, and one of its network."""
EVERYTHING = ("api.enabled=true", "cost.enabled=true", "monitoring.enabled=true")
GATE = ("MutatingAdmissionPolicy", "gpupack-gate")


def template(helm, *more):
    values = [f"--set={value}" for value in ("image.registry=a", *EVERYTHING)]
    done = helm("template", "gpupack", str(CHART), "--namespace=gpu-tools", *values, *more)
    return done.stdout, done.stderr


def issued(rendered):
    part = rendered.container("Deployment", "gpupack-certificates", "certificates")
    (text,) = [each["value"] for each in part["env"] if each["name"] == "GPUPACK_CERTIFICATES"]
    return parse_certificate_requests(text)


def test_rendering_is_deterministic(helm):
    version = f"--kube-version={KUBERNETES}"
    manifests, error = template(helm, version)
    assert (bool(manifests), error) == (True, "")
    assert template(helm, version) == (manifests, "")


def test_a_rendering_does_not_depend_on_what_the_cluster_serves(render):
    assert render(apis=CLUSTER).text == render().text


@pytest.mark.parametrize(
    ("version", "gated"), [("v1.35.9", False), ("v1.36.1", True), ("v1.37.2-gke.7", True)]
)
def test_standalone_pods_are_gated_by_the_clusters_version(render, version, gated):
    rendered = render(version=version)
    assert (GATE in rendered.objects) == gated
    image = rendered.container("Deployment", "gpupack-scheduler", "kube-scheduler")["image"]
    assert image.endswith(":" + version.partition("-")[0])


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("admission.gatePods=true",), "scheduler.kubeScheduler.image.tag"),
        (('scheduler.kubeScheduler.image.tag="v1.36.3"',), "admission.gatePods to true or false"),
    ],
)
def test_an_assumed_kubernetes_version_is_refused_with_the_values_to_set(render, values, named):
    """A version v1.N.0 is ambiguous: Helm's assumed version always ends in .0."""
    refused = render(*values, version="v1.36.0")
    assert refused.status != 0
    assert "--kube-version" in refused.error
    assert named in refused.error


@pytest.mark.parametrize(
    ("values", "apis"),
    [
        ((), CLUSTER),
        (("admission.gatePods=true", 'scheduler.kubeScheduler.image.tag="v1.36.0"'), ()),
    ],
    ids=["as Argo CD renders", "both values are set"],
)
def test_a_known_kubernetes_version_is_used(render, values, apis):
    assert GATE in render(*values, version="v1.36.0", apis=apis).objects


def fields(item, path=""):
    """Yield each field of an object with its path; entries of a list have the list's path."""
    if isinstance(item, dict):
        for key, value in item.items():
            yield f"{path}.{key}", value
            yield from fields(value, f"{path}.{key}")
    elif isinstance(item, list):
        for value in item:
            yield from fields(value, path)


def is_stored_otherwise(path, value):
    """Return whether the API server drops this field, or adds fields to it in a list.

    A client that compares the rendering with what is stored then finds a difference each time:
    kubectl apply prints "configured", and Argo CD says OutOfSync. Where server-side apply handles
    the whole field as one, it is a conflict with the manager that applied the same before.
    """
    if path.endswith(".matchConstraints.resourceRules"):
        return any("scope" not in rule for rule in value)
    if path.endswith(".matchConstraints"):
        return not {"matchPolicy", "namespaceSelector", "objectSelector"} <= set(value)
    if path.endswith(".valueFrom.fieldRef"):
        return "apiVersion" not in value
    if path.endswith(".containers.env"):
        return any(each.get("value", "set") == "" for each in value)
    if path.endswith(".additionalPrinterColumns"):
        return any(each.get("priority") == 0 for each in value)
    return path == ".globalDefault" and not value


@pytest.mark.parametrize(
    "values",
    [
        (),
        (*EVERYTHING, "preflight.enabled=true", "provisioning.enabled=true", "metricsPort=9443"),
        ('kubelet.rootDir="/a"', 'image.pullSecrets=[{"name":"mine"}]', "preflight.enabled=true"),
    ],
    ids=["defaults", "everything", "with texts"],
)
def test_the_api_server_stores_what_was_rendered(render, values):
    objects = render(*values).objects
    found = [(key, *each) for key, item in objects.items() for each in fields(item)]
    assert [each for each in found if is_stored_otherwise(*each[1:])] == []
    assert [(key, path) for key, path, value in found if value is None] == []


def test_every_certificate_is_issued_in_the_cluster(render):
    rendered = render(*EVERYTHING, namespace="gpu-tools")
    secrets = {name: o for (kind, name), o in rendered.objects.items() if kind == "Secret"}
    made = {name for name in secrets if name.endswith("-certificate")}
    assert {each.secret for each in issued(rendered)} == made
    assert len(made) == 4
    for name in made:
        assert (secrets[name]["type"], "data" in secrets[name]) == ("Opaque", False)
    (rule,) = rendered.objects["Role", "gpupack-certificates"]["rules"]
    assert set(rule["resourceNames"]) == made
    hosts = {each.service: each.host for each in issued(rendered)}
    assert hosts["gpupack-extender"] == "gpupack-extender.gpu-tools.svc"


def test_no_component_issues_certificates_if_all_secrets_exist(render):
    own = [f'{part}.tls.existingSecret="mine"' for part in ("scheduler", "api", "monitoring")]
    objects = render(*own, "metricsPort=9443").objects
    assert not [name for _, name in objects if name.startswith("gpupack-certificates")]
    assert not [name for kind, name in objects if kind == "Secret"]


def test_every_mounted_secret_is_created_or_named_by_a_value(render):
    rendered = render(*EVERYTHING, 'api.tls.existingSecret="mine"', "api.readings.enabled=true")
    there = {name for kind, name in rendered.objects if kind == "Secret"} | {"mine"}
    mounted = {
        source["secret"].get("secretName") or source["secret"].get("name")
        for (kind, _), o in rendered.objects.items()
        if kind in {"Deployment", "DaemonSet"}
        for volume in o["spec"]["template"]["spec"].get("volumes", ())
        for source in (volume, *volume.get("projected", {}).get("sources", ()))
        if "secret" in source
    }
    assert mounted <= there


def test_objects_refer_only_to_the_releases_namespace(render):
    rendered = render(*EVERYTHING, namespace="gpu-tools")
    assert "gpupack-system" not in rendered.text


def test_the_release_is_published_with_its_ca_secrets(render):
    rendered = render(*EVERYTHING, 'api.tls.existingSecret="mine"', namespace="gpu-tools")
    published = rendered.objects["ConfigMap", "gpupack-gpu-tools"]
    assert published["metadata"]["namespace"] == "kube-public"
    assert published["metadata"]["labels"]["app.kubernetes.io/name"] == "gpupack"
    assert published["data"] == {
        "namespace": "gpu-tools",
        "extenderCertificate": "gpupack-extender-certificate",
        "apiCertificate": "mine",
    }
