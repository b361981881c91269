# SPDX-License-Identifier: Apache-2.0
"""What one look says of the parts and of whether anything holds GPUs."""

import copy

import pytest
from fixtures import in_use
from parts import settled


def obj(kind, name, **rest):
    return {"kind": kind, "metadata": {"name": name, "generation": 2, "labels": {}}, **rest}


def deployment(name):
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 2)
    return obj("Deployment", name, spec={"replicas": 2}, status={"observedGeneration": 2, **counts})


def lease(name, pod):
    return obj("Lease", name, spec={"holderIdentity": f"{pod}_1234"})


@pytest.fixture
def objects():
    agents = dict.fromkeys(
        ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 3
    )
    slices = obj("EndpointSlice", "gpupack-extender-x", endpoints=[{"addresses": ["198.18.0.7"]}])
    slices["metadata"]["labels"] = {"kubernetes.io/service-name": "gpupack-extender"}
    return {
        "operator": deployment("gpupack-operator"),
        "scheduler": deployment("gpupack-scheduler"),
        "agent": obj("DaemonSet", "gpupack-agent", status={"observedGeneration": 2, **agents}),
        "operator's lease": lease("gpupack-operator", "operator-a"),
        "scheduler's lease": lease("gpupack-scheduler", "scheduler-b"),
        "operator's pod": obj("Pod", "operator-a", status={}),
        "scheduler's pod": obj("Pod", "scheduler-b", status={"podIP": "198.18.0.7"}),
        "slices": slices,
    }


def test_all_parts_in_their_newest_form_with_leaders_are_settled(objects):
    assert settled(objects.values())


@pytest.mark.parametrize(
    ("which", "path", "value"),
    [
        ("operator", ("status", "observedGeneration"), 1),
        ("scheduler", ("status", "replicas"), 3),
        ("scheduler", ("status", "availableReplicas"), 1),
        ("agent", ("status", "updatedNumberScheduled"), 2),
        ("operator's lease", ("spec", "holderIdentity"), ""),
        ("operator's lease", ("spec", "holderIdentity"), "operator-gone_99"),
        ("operator's pod", ("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z"),
        ("scheduler's pod", ("status", "podIP"), "198.18.0.8"),
        ("slices", ("endpoints",), None),
    ],
)
def test_one_part_that_lags_or_has_no_leader_unsettles(objects, which, path, value):
    changed = copy.deepcopy(objects)
    *inner, last = path
    at = changed[which]
    for key in inner:
        at = at[key]
    at[last] = value
    assert not settled(changed.values())


def test_pods_that_hold_gpus_or_terminate_count_as_use():
    going = obj("Namespace", "going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    job = obj("GPUJob", "job")
    job["metadata"]["namespace"] = "going"
    container = {"resources": {"limits": {"gpupack.dev/gpu": "1"}}}
    running = obj("Pod", "p", spec={"containers": [container]}, status={"phase": "Running"})
    ended = obj("Pod", "p", spec={"containers": [container]}, status={"phase": "Succeeded"})
    node = obj("GPUNode", "n", status={"holders": [{"name": "p"}]})
    observed = obj("GPUNode", "n", status={"mode": "observed", "holders": [{"name": "p"}]})
    assert [in_use(each) for each in ([going, job], [running], [node])] == [True] * 3
    assert [in_use(each) for each in ([going], [job], [ended], [observed], [])] == [False] * 5
