# SPDX-License-Identifier: Apache-2.0
"""Objects that no reader expects, made by an ordinary tenant: as large, or nested as deeply, as the
API server takes them, or with what the operator's framework keeps of its own.

Operator, extender and agents read every object of their kinds, of any user, and end for none.
"""

import json

import pytest
from harness import wait_for
from manifests import JUDGE_IMAGE, gpujob
from parts import restarts

PODS = "/api/v1/namespaces/{namespace}/pods"
GPUJOBS = "/apis/gpupack.dev/v1beta1/namespaces/{namespace}/gpujobs"
LETTERS = 1_200_000
"""etcd takes 1.5 MiB for an object."""
TEMPLATE_LETTERS = 210_000
"""The policy about GPUJobs takes 256 KiB for a template."""


def create(tenant, collection, text):
    """Send bytes as they are: kubectl's own encoder would write each < in six of them."""
    path = collection.format(namespace=tenant.kube.namespace)
    made = tenant.kubectl("create", "--raw", path, "-f", "-", stdin=text)
    assert made.returncode == 0, made.stderr


def pod(node):
    """Every < is six bytes in JSON, so that one event of this pod is a line of 7 MB."""
    worker = {"name": "worker", "image": JUDGE_IMAGE, "args": ["<" * LETTERS]}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "large"},
            "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [worker]},
        }
    )


def large_gpujob():
    """Return a GPUJob with about the largest template that is allowed: 1.3 MB in JSON."""
    words = ["<" * 30_000] * (TEMPLATE_LETTERS // 30_000)
    template = {"spec": {"containers": [{"name": "worker", "image": JUDGE_IMAGE, "args": words}]}}
    return json.dumps(gpujob("large", template=template, suspend=True))


def deep_gpujob(depth):
    """Written as text: no JSON library of ours writes it."""
    worker = {"name": "worker", "image": JUDGE_IMAGE, "deep": "DEEP"}
    job = gpujob("deep", template={"spec": {"containers": [worker]}}, suspend=True)
    return json.dumps(job).replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth)


def others_run(system, judged, neighbour, before):
    """Check that every part sees later objects and did not restart because of the large one."""
    neighbour.submit(judged.job("after"))
    neighbour.wait_phase("after", "Succeeded")
    assert restarts(system) == before


def test_a_pod_of_a_megabyte_of_one_letter_ends_no_part(kube, resident, system, judged, others):
    neighbour, before = others("neighbour"), restarts(system)
    assert before
    create(resident, PODS, pod(kube.nodes()[0]))
    for number in range(5):
        assert resident.kubectl(
            "annotate", "pod", "large", f"change={number}", "--overwrite"
        ).stdout
    others_run(system, judged, neighbour, before)


def test_gpujobs_of_a_megabyte_end_no_part(kube, resident, system, judged, others):
    neighbour, before = others("neighbour"), restarts(system)
    create(resident, GPUJOBS, large_gpujob())
    wait_for(lambda: kube.phase("large") or None, seconds=60, what="a status for the large GPUJob")
    others_run(system, judged, neighbour, before)


@pytest.mark.parametrize("depth", [120, 900, 5000])
def test_a_gpujob_that_is_nested_deeply_ends_no_part(kube, resident, system, judged, others, depth):
    neighbour, before = others("neighbour"), restarts(system)
    create(resident, GPUJOBS, deep_gpujob(depth))
    others_run(system, judged, neighbour, before)


def test_a_gpujob_with_annotations_of_kopf_is_handled_like_others(kube, system, judged, others):
    neighbour, before = others("neighbour"), restarts(system)
    marked = judged.job("marked")
    marked["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "x"}
    kube.submit(marked)
    kube.wait_phase("marked", "Succeeded")
    others_run(system, judged, neighbour, before)
