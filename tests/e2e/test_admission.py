# SPDX-License-Identifier: Apache-2.0
"""A pod's device annotation comes with the scheduler's Binding or not at all.

All of this is tried as the administrator; the pods name a scheduler that does not exist.
"""

import json

import pytest
from harness import DEVICES_ANNOTATION, SYSTEM_NAMESPACE

REFUSAL = "only gpupack's scheduler writes it"
SCHEDULER = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-scheduler"


def pod(**annotations):
    """A pod that no kubelet will ever see, so that nothing delays its deletion."""
    container = {"name": "main", "image": "docker.io/gpupack/judge:dev"}
    spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "idle", "annotations": annotations},
        "spec": spec | {"containers": [container]},
    }


def bind(kube, *flags):
    path = f"/api/v1/namespaces/{kube.namespace}/pods/idle/binding"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "idle", "annotations": {DEVICES_ANNOTATION: "[]"}},
        "target": {"kind": "Node", "name": "no-such-node"},
    }
    return kube.kubectl("create", "--raw", path, "-f", "-", *flags, stdin=json.dumps(binding))


def test_a_pod_cannot_be_created_with_devices(kube):
    assert REFUSAL in kube.apply(pod(**{DEVICES_ANNOTATION: "[]"})).stderr


def test_a_binding_with_devices_is_the_schedulers_alone(kube):
    kube.submit(pod())
    assert REFUSAL in bind(kube).stderr
    assert bind(kube, SCHEDULER).returncode == 0


@pytest.mark.parametrize("change", ["=[1]", "-"], ids=["changed", "taken away"])
def test_devices_of_a_bound_pod_stay_what_they_are(kube, change):
    kube.submit(pod())
    bind(kube, SCHEDULER)
    wish = f"{DEVICES_ANNOTATION}{change}"
    assert REFUSAL in kube.kubectl("annotate", "--overwrite", "pod", "idle", wish).stderr


def test_a_status_update_is_no_way_around(kube):
    kube.submit(pod())
    patch = json.dumps({"metadata": {"annotations": {DEVICES_ANNOTATION: "[]"}}})
    arguments = ("patch", "pod", "idle", "--subresource=status", "--type=merge", "--patch", patch)
    assert REFUSAL in kube.kubectl(*arguments).stderr


def test_everything_else_of_a_bound_pod_can_be_annotated(kube):
    kube.submit(pod(owner="a"))
    bind(kube, SCHEDULER)
    done = kube.kubectl("annotate", "--overwrite", "pod", "idle", "owner=b")
    assert (done.returncode, done.stderr) == (0, "")
