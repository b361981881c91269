# SPDX-License-Identifier: Apache-2.0
"""Runs the stand-in for cluster-autoscaler under an identity of its own."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import yaml
from harness import ROOT, Kube, wait_for

NAME = "stand-in-for-cluster-autoscaler"
CRD = ROOT / "tests/e2e/provisioning_request_crd.yaml"
CRD_NAME = "crd/provisioningrequests.autoscaling.x-k8s.io"
RULES = (
    ("autoscaling.x-k8s.io", "provisioningrequests", "list"),
    ("autoscaling.x-k8s.io", "provisioningrequests/status", "patch"),
    ("", "podtemplates", "get"),
    ("", "pods", "list"),
    ("", "nodes", "list create delete"),
    ("gpupack.dev", "gpunodes", "create delete"),
    ("gpupack.dev", "gpunodes/status", "patch"),
)


@contextlib.contextmanager
def kind_installed(system: Kube) -> Iterator[None]:
    """Ensure that the cluster knows ProvisioningRequests."""
    system.insist("apply", "-f", str(CRD))
    system.insist("wait", CRD_NAME, "--for=condition=Established", "--timeout=30s")
    try:
        yield
    finally:
        system.insist("delete", CRD_NAME, "--ignore-not-found", "--timeout=60s")


@contextlib.contextmanager
def identity(system: Kube, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a kubeconfig for the stand-in, with the rights above and no others."""
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}
        for group, resource, verbs in RULES
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": rules,
    }
    account = f"--serviceaccount={system.namespace}:{NAME}"
    with contextlib.ExitStack() as stack:
        for kind in ("serviceaccount", "clusterrole", "clusterrolebinding"):
            stack.callback(system.kubectl, "delete", kind, NAME)
            system.kubectl("delete", kind, NAME, "--ignore-not-found")
        system.insist("create", "serviceaccount", NAME)
        system.submit(role)
        system.insist("create", "clusterrolebinding", NAME, f"--clusterrole={NAME}", account)
        token = system.insist("create", "token", NAME, "--duration=2h").strip()
        config = yaml.safe_load(system.kubeconfig.read_text())
        config["users"] = [
            {"name": each["name"], "user": {"token": token}} for each in config["users"]
        ]
        path = folder / "stand-in.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        yield path


@contextlib.contextmanager
def answering(
    kubeconfig: pathlib.Path, answer: str = "Provisioned", *, after_seconds: float = 5
) -> Iterator[None]:
    """Run the stand-in until the block ends."""
    here = pathlib.Path(__file__).parent
    command = [sys.executable, str(here / "autoscaler_stand_in.py"), str(after_seconds), answer]
    folders = [path for path in sys.path if path]
    environ = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": ":".join(folders)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "stand-in" in process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


def requests_of(kube: Kube) -> list[str]:
    """Return the names of all objects in a namespace that request nodes."""
    kinds = "provisioningrequests,podtemplates"
    return sorted(kube.insist("get", kinds, "--output=name").split())


def grown(system: Kube) -> list[str]:
    """Return the names of the nodes that the stand-in made."""
    selector = "--selector=stand-in.devcluster/provisioning-request"
    return system.insist("get", "nodes", selector, "--output=name").split()


def wait_shrunk(system: Kube) -> None:
    """Wait until none of the stand-in's nodes is left."""
    wait_for(lambda: not grown(system), seconds=60, what="the nodes are gone again")
