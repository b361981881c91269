# SPDX-License-Identifier: Apache-2.0
"""Namespaces of tenants can stand at Pod Security's level `restricted`: all examples run there."""

import pytest
import yaml
from harness import ROOT, wait_for
from manifests import gpujob

# Refused, or nothing that starts.
NOT_STARTED = {"invalid", "quota", "too-big"}
EXAMPLES = {
    path.stem: list(yaml.safe_load_all(path.read_text()))
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if path.stem not in NOT_STARTED
}


@pytest.fixture
def restricted(kube):
    """A namespace at that level."""
    level = "pod-security.kubernetes.io/enforce=restricted"
    kube.insist("label", "namespace", kube.namespace, level)
    wait_for(lambda: refused(kube), seconds=60, what="the label counts")
    return kube


def refused(kube):
    """Return whether a pod that violates the policy is refused."""
    flags = ("--image=any", "--restart=Never", "--dry-run=server")
    return "violates PodSecurity" in kube.kubectl("run", "any", *flags).stderr


@pytest.mark.parametrize("manifests", EXAMPLES.values(), ids=EXAMPLES)
def test_every_example_gets_its_pods_in_a_restricted_namespace(restricted, manifests):
    restricted.submit(*manifests)
    wait_for(lambda: restricted.pods() or None, seconds=90, what="its pods")


def test_a_users_image_runs_in_a_restricted_namespace_as_non_root(restricted):
    worker = {"name": "worker", "image": "example.test/train:1"}
    spec = {"containers": [worker], "securityContext": {"runAsNonRoot": True}}
    restricted.submit(gpujob("train", template={"spec": spec}))
    (pod, *_) = wait_for(lambda: restricted.pods() or None, seconds=60, what="its pod")
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
