# SPDX-License-Identifier: Apache-2.0
"""What a pod gets comes with the scheduler's Binding or not at all, for every caller.

Tried as the administrator; the pods name a scheduler that does not exist.
"""

import json

import pytest
from admission import pod
from harness import DEVICES_ANNOTATION, SYSTEM_NAMESPACE

REFUSAL = "only gpupack's scheduler writes it"
SCHEDULER = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-scheduler"
FORGED = '[{"uuid":"GPU-1","percent":100,"memoryMiB":1}]'


def bind(kube, *flags, path="pods/idle/binding"):
    path = f"/api/v1/namespaces/{kube.namespace}/{path}"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "idle", "annotations": {DEVICES_ANNOTATION: FORGED}},
        "target": {"kind": "Node", "name": "no-such-node"},
    }
    return kube.kubectl("create", "--raw", path, "-f", "-", *flags, stdin=json.dumps(binding))


SHARED = {"gpupack.dev/workers": "0-1", "gpupack.dev/gang-memory": "uid/1"}
"""What the agent opens to other containers of the pod, or to other pods of its gang, by."""


def test_a_pod_cannot_be_created_with_devices(kube):
    assert REFUSAL in kube.apply(pod(annotations={DEVICES_ANNOTATION: FORGED})).stderr


@pytest.mark.parametrize("name", SHARED)
def test_a_pod_does_not_say_itself_what_it_shares(kube, name):
    said = kube.apply(pod(annotations={name: SHARED[name]})).stderr
    assert (REFUSAL in said, name in said) == (True, True)
    assert REFUSAL in kube.apply(pod(annotations={name: ""})).stderr
    kube.submit(pod())
    bind(kube, SCHEDULER)
    assert REFUSAL in kube.kubectl("annotate", "pod", "idle", f"{name}={SHARED[name]}").stderr


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
    patch = json.dumps({"metadata": {"annotations": {DEVICES_ANNOTATION: FORGED}}})
    arguments = ("patch", "pod", "idle", "--subresource=status", "--type=merge", "--patch", patch)
    assert REFUSAL in kube.kubectl(*arguments).stderr


def test_everything_else_of_a_bound_pod_can_be_annotated(kube):
    kube.submit(pod(annotations={"owner": "a"}))
    bind(kube, SCHEDULER)
    done = kube.kubectl("annotate", "--overwrite", "pod", "idle", "owner=b")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "account",
    [
        "system:serviceaccount:kube-system:replicaset-controller",
        f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-operator",
        f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-agent",
        "system:kube-scheduler",
    ],
)
def test_a_controller_cannot_forge_the_annotation_for_another_user(system, account):
    manifest = json.dumps(pod(annotations={DEVICES_ANNOTATION: FORGED}))
    flags = ("--dry-run=server", "-f", "-", f"--as={account}", "--as-group=system:masters")
    assert REFUSAL in system.kubectl("create", *flags, stdin=manifest).stderr


def test_the_older_way_to_bind_is_no_way_around(kube):
    kube.submit(pod())
    assert REFUSAL in bind(kube, path="bindings").stderr


def test_replacing_a_bound_pod_does_not_take_its_devices_away(kube):
    kube.submit(pod())
    bind(kube, SCHEDULER)
    found = json.loads(kube.kubectl("get", "pod", "idle", "--output=json").stdout)
    del found["metadata"]["annotations"][DEVICES_ANNOTATION]
    assert REFUSAL in kube.kubectl("replace", "-f", "-", stdin=json.dumps(found)).stderr
