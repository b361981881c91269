# SPDX-License-Identifier: Apache-2.0
"""A release in another namespace, of manifests that were rendered without the cluster."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import chaos
import pytest
from harness import ROOT, STATE, SYSTEM_NAMESPACE, Kube, cluster_kind, wait_for
from rest_clients import viewer

from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.settings import HOST

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(
        cluster_kind() == "kind", reason="the chart of a kind cluster is not installed by us"
    ),
]

ELSEWHERE = "gpu-tools"
CHART = str(ROOT / "charts/gpupack")
WORKLOADS = "deployments,daemonsets"
ALWAYS_CONFIGURED = "poddisruptionbudget.policy/"
"""Of these kubectl apply always sends the selector, which is replaced as a whole."""
OF_RELEASE = {
    "parts",
    "pods",
    "leaders",
    "certificates",
    "metrics",
    "REST API",
    "REST API's caller",
}
"""Checks of doctor's that look into the release's namespace."""


def helm(kubeconfig, *arguments):
    command = [str(STATE / "bin/helm"), *arguments, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(system, values, *more):
    """Return what a tool that knows the cluster's version and nothing else of it renders."""
    version = json.loads(system.insist("version", "--output=json"))["serverVersion"]["gitVersion"]
    command = [str(STATE / "bin/helm"), "template", "gpupack", CHART, f"--namespace={ELSEWHERE}"]
    command += [f"--values={values}", f"--kube-version={version}", *more]
    away = os.environ | {"KUBECONFIG": "/nonexistent"}
    return subprocess.run(command, env=away, capture_output=True, text=True, check=True).stdout


def runs(kube):
    """Wait until every workload of the namespace has its pods."""
    for name in kube.insist("get", WORKLOADS, "--output=name").split():
        kube.insist("rollout", "status", name, "--timeout=240s")


@pytest.fixture
def elsewhere(cluster, system, tmp_path):
    """The release in another namespace, by `kubectl apply`; afterwards it is where it was."""
    values = tmp_path / "values.yaml"
    where = ("--namespace", SYSTEM_NAMESPACE)
    values.write_text(helm(system.kubeconfig, "get", "values", "gpupack", "--output=yaml", *where))
    manifests = rendered(system, values)
    assert rendered(system, values) == manifests
    helm(system.kubeconfig, "uninstall", "gpupack", "--wait", "--timeout=3m", *where)
    wait_for(lambda: not pods(system), seconds=120, what="no pod of the release is left")
    there = dataclasses.replace(system, namespace=ELSEWHERE)
    system.insist("create", "namespace", ELSEWHERE)
    try:
        applied(system, manifests)
        runs(there)
        yield there, manifests
    finally:
        # The CRDs stay, and with them GPUNodes.
        own = rendered(system, values, "--set=crds.install=false")
        by_manifests(system).kubectl("delete", "--ignore-not-found", "-f", "-", stdin=own)
        system.insist("delete", "namespace", ELSEWHERE)
        install = ("upgrade", "--install", "gpupack", CHART, f"--values={values}")
        helm(system.kubeconfig, *install, "--create-namespace", *where)
        forget(cluster, system)
        runs(system)


def forget(cluster, system):
    """Remove what an installation by `kubectl apply` leaves, and what the API server remembers.

    It follows no ConfigMap again that was a parameter of a policy that was deleted and comes back.
    """
    mark = "kubectl.kubernetes.io/last-applied-configuration"
    for name in system.insist("get", "crds", "--output=name").split():
        if name.endswith(".gpupack.dev"):
            system.insist("annotate", name, f"{mark}-")
    chaos.restart(cluster, HOST, HostComponent.API_SERVER)
    ready = ("get", "--raw=/readyz")
    wait_for(lambda: system.kubectl(*ready).returncode == 0, seconds=120, what="the API server")
    chaos.tend(cluster)


def by_manifests(kube: Kube):
    """kubectl without a namespace: objects of several are in the manifests, each with its own."""
    return dataclasses.replace(kube, namespace="")


def applied(kube: Kube, manifests):
    """Apply them; returns a line for each object."""
    return by_manifests(kube).insist("apply", "-f", "-", stdin=manifests)


def versions(kube: Kube, manifests):
    """The versions of what people wrote of the objects: not of their status."""
    form = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}\n{end}"
    listing = by_manifests(kube).insist("get", "-f", "-", f"--output={form}", stdin=manifests)
    return listing.splitlines()


def pods(kube: Kube):
    return kube.insist("get", "pods", "--output=name").split()


def certificate(kube):
    secret = json.loads(kube.insist("get", "secret", "gpupack-api-certificate", "-o", "json"))
    return secret.get("data", {})


@dataclasses.dataclass(frozen=True)
class User:
    """Run commands and programs as a user that does not name the release's namespace."""

    kubeconfig: Path
    token: str

    def run(self, program, *arguments):
        environ = {
            "HOME": "/nonexistent",
            "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "KUBECONFIG": str(self.kubeconfig),
            "GPUPACK_TOKEN": self.token,
            "GPUPACK_BACKEND": "cluster",
        }
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def gpupack(self, *arguments):
        return self.run("from gpupack_cli.main import main; main()", *arguments)

    def broken(self, *options):
        """Return the checks of doctor that failed, and those that could not run."""
        done = self.gpupack("doctor", "--output=json", *options)
        assert done.stdout, done.stderr
        findings = json.loads(done.stdout)["findings"]
        assert {each["check"] for each in findings} >= OF_RELEASE
        bad = [each for each in findings if each["level"] in {"failed", "skipped"}]
        return [each for each in bad if each["check"] in OF_RELEASE]


@pytest.fixture
def user(kube):
    """The administrator, with a token of a service account for the REST API."""
    with viewer(kube, "gpupack-edit") as token:
        yield User(kube.kubeconfig, token)


@pytest.fixture
def second(kube):
    """Publishes another release, as a second one would."""
    public = dataclasses.replace(kube, namespace="kube-public")
    labels = {"app.kubernetes.io/name": "gpupack"}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"namespace": "second-gpupack"}}
    item["metadata"] = {"name": "gpupack-second-gpupack", "labels": labels}
    yield lambda: public.insist("apply", "-f", "-", stdin=json.dumps(item))
    public.kubectl("delete", "configmap", "gpupack-second-gpupack", "--ignore-not-found")


def test_a_release_that_was_rendered_without_the_cluster_serves_in_another_namespace(
    elsewhere, judged, resident, user, second, subtests
):
    there, manifests = elsewhere
    kube = resident.kube
    with subtests.test("a second application changes nothing"):
        before = versions(there, manifests)
        lines = applied(there, manifests).splitlines()
        changed = [line for line in lines if not line.endswith(" unchanged")]
        assert [line for line in changed if not line.startswith(ALWAYS_CONFIGURED)] == []
        assert versions(there, manifests) == before
        differs = by_manifests(there).kubectl("diff", "-f", "-", stdin=manifests)
        assert (differs.returncode, differs.stdout) == (0, "")
    with subtests.test("a job runs"):
        kube.submit(judged.job("train", gpus=1, seconds=0.1))
        kube.wait_phase("train", "Succeeded", seconds=120)
    with subtests.test("the command line finds the release"):
        assert user.broken() == []
    with subtests.test("the Python API finds the release"):
        program = "import gpupack; print(gpupack.get_gpu_resource_manager().get_gpu_status())"
        done = user.run(program)
        assert (done.returncode, done.stderr) == (0, "")
    with subtests.test("a tenant of one namespace finds the release"):
        listing = ("get", "configmaps", "-n", "kube-public", "-l", "app.kubernetes.io/name=gpupack")
        found = resident.kubectl(*listing, "-o", "jsonpath={.items[*].data.namespace}")
        assert (found.stdout, found.stderr) == (ELSEWHERE, "")
    with subtests.test("an emptied Secret gets a new certificate"):
        before = certificate(there)
        patch = json.dumps({"data": None})
        there.insist("patch", "secret", "gpupack-api-certificate", "--type=merge", "-p", patch)
        wait_for(
            lambda: certificate(there).get("ca.crt"),
            seconds=60,
            what="the Secret is filled again",
        )
        assert certificate(there)["ca.crt"] != before["ca.crt"]
    with subtests.test("of two releases none is guessed"):
        second()
        refused = user.gpupack("doctor")
        assert refused.returncode == 78
        assert f"({ELSEWHERE}, second-gpupack)" in refused.stderr
        named = user.gpupack("doctor", f"--system-namespace={ELSEWHERE}", "--output=json")
        assert len(json.loads(named.stdout)["findings"]) > 10
