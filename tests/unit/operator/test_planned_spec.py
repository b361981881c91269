# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_kubeclient.errors import KubeError
from gpupack_operator import planned_spec

TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gold"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
TOLERATION = {"key": "gold", "operator": "Exists", "effect": "NoSchedule"}


def parts(**spec):
    return msgspec.json.decode(planned_spec.read(msgspec.json.encode(spec)))


def test_only_parts_of_the_pod_spec_that_a_plan_reads_are_kept():
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    kept = {
        "initContainers": [sidecar],
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"pool": "gold"},
        "tolerations": [TOLERATION],
        "terminationGracePeriodSeconds": 600,
    }
    near = {"podAffinity": {}, "nodeAffinity": REQUIRED | PREFERRED}
    rest = {"volumes": [{"name": "a", "emptyDir": {}}], "priority": 5, "affinity": near}
    assert parts(**kept, **rest) == kept | {"affinity": {"nodeAffinity": REQUIRED}}


def test_missing_requests_are_derived_from_limits():
    resources = {"limits": {"gpupack.dev/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    (container,) = parts(containers=[{"name": "worker", "resources": resources}])["containers"]
    assert container["resources"] == {"requests": {"gpupack.dev/gpu": "1", "cpu": "1"}}


def test_an_invalid_pod_spec_raises_an_error():
    with pytest.raises(KubeError):
        planned_spec.read(b'{"containers": 5}')


def pod_of(size):
    return msgspec.json.encode({"nodeSelector": {"pool": "x" * size}})


def test_a_pod_larger_than_16_kib_is_omitted_from_the_status():
    small, large = (
        planned_spec.planned_pods({"": pod_of(size)})[""]
        for size in (100, planned_spec.MAX_STORED_BYTES)
    )
    assert (small.spec, small.omitted) == ({"nodeSelector": {"pool": "x" * 100}}, False)
    assert (large.spec, large.omitted) == ({}, True)
    assert planned_spec.planned_pods({"": None}) == {"": None}


def test_the_pods_of_all_roles_together_have_at_most_16_kib_in_the_status():
    sizes = {"large": 9000, "small": 100, "middle": 6000, "larger": 9001}
    found = planned_spec.planned_pods({name: pod_of(size) for name, size in sizes.items()})
    assert [name for name, each in found.items() if each.omitted] == ["larger"]
    assert list(found) == list(sizes)
    assert planned_spec.planned_pods({"a": None, "b": pod_of(15_000)})["b"].spec
