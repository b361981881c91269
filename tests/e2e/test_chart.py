# SPDX-License-Identifier: Apache-2.0
"""What only a real API server shows of the chart."""

import dataclasses
import json
import subprocess
from collections import defaultdict

import pytest
import yaml
from harness import ROOT, STATE, SYSTEM_NAMESPACE


@pytest.fixture(scope="module")
def upgrade(system):
    """Return what `helm upgrade` would apply now, as objects by kind and name."""
    command = [str(STATE / "bin/helm"), "upgrade", "gpupack", str(ROOT / "charts/gpupack")]
    command += ["--namespace", SYSTEM_NAMESPACE, "--kubeconfig", str(system.kubeconfig)]
    command += ["--reuse-values", "--dry-run=server", "--output=yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifests = yaml.safe_load_all(yaml.safe_load(done.stdout)["manifest"])
    return {(item["kind"], item["metadata"]["name"]): item for item in manifests if item}


def test_an_upgrade_leaves_a_certificate_to_the_part_that_issued_it(system, upgrade):
    stored = system.kubectl("get", "secret", "gpupack-extender-certificate", "--output=yaml").stdout
    assert set(yaml.safe_load(stored)["data"]) >= {"ca.crt", "tls.crt", "tls.key"}
    assert "data" not in upgrade["Secret", "gpupack-extender-certificate"]


def test_a_rendering_without_the_cluster_is_what_an_upgrade_applies(system, upgrade, tmp_path):
    helm = str(STATE / "bin/helm")
    where = ("--namespace", SYSTEM_NAMESPACE)
    command = [helm, "get", "values", "gpupack", "--output=yaml", *where]
    command += ["--kubeconfig", str(system.kubeconfig)]
    values = subprocess.run(command, capture_output=True, check=True).stdout
    (tmp_path / "values.yaml").write_bytes(values)
    version = json.loads(system.insist("version", "--output=json"))["serverVersion"]["gitVersion"]
    command = [helm, "template", "gpupack", str(ROOT / "charts/gpupack"), *where]
    command += [f"--values={tmp_path / 'values.yaml'}", f"--kube-version={version}"]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    rendered = [item for item in yaml.safe_load_all(text) if item]
    assert {(item["kind"], item["metadata"]["name"]): item for item in rendered} == upgrade


def test_kube_scheduler_is_of_the_clusters_own_version(system, upgrade):
    version = yaml.safe_load(system.kubectl("version", "--output=yaml").stdout)["serverVersion"]
    pod = upgrade["Deployment", "gpupack-scheduler"]["spec"]["template"]["spec"]
    images = {container["name"]: container["image"] for container in pod["containers"]}
    assert images["kube-scheduler"].endswith(":" + version["gitVersion"].partition("-")[0])


def test_every_rendered_object_is_accepted_as_it_is(system, upgrade):
    by_namespace = defaultdict(list)
    for item in upgrade.values():
        by_namespace[item["metadata"].get("namespace", SYSTEM_NAMESPACE)].append(item)
    for namespace, items in by_namespace.items():
        answer = dataclasses.replace(system, namespace=namespace).kubectl(
            "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
            "-f", "-", stdin=yaml.safe_dump_all(items),
        )  # fmt: skip
        assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    ("account", "verb", "allowed"),
    [("view", "get", "yes"), ("view", "create", "no"), ("edit", "create", "yes")],
)
def test_the_clusters_own_roles_cover_gpujobs(kube, account, verb, allowed):
    kube.kubectl("create", "serviceaccount", account)
    name = f"{kube.namespace}:{account}"
    kube.kubectl(
        "create", "rolebinding", account, f"--clusterrole={account}", f"--serviceaccount={name}"
    )
    user = f"--as=system:serviceaccount:{name}"
    assert kube.kubectl("auth", "can-i", verb, "gpujobs", user).stdout.strip() == allowed
    plan = kube.kubectl("auth", "can-i", "create", "gpujobs", "--subresource=plan", user)
    assert plan.stdout.strip() == "no"
