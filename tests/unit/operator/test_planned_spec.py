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


def test_what_decides_where_a_pod_fits_is_kept_and_nothing_else():
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    kept = {
        "initContainers": [sidecar],
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"pool": "gold"},
        "tolerations": [TOLERATION],
    }
    near = {"podAffinity": {}, "nodeAffinity": REQUIRED | PREFERRED}
    rest = {"volumes": [{"name": "a", "emptyDir": {}}], "priority": 5, "affinity": near}
    assert parts(**kept, **rest) == kept | {"affinity": {"nodeAffinity": REQUIRED}}


def test_requests_that_follow_from_limits_are_written_as_requests():
    resources = {"limits": {"gpupack.dev/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    (container,) = parts(containers=[{"name": "worker", "resources": resources}])["containers"]
    assert container["resources"] == {"requests": {"gpupack.dev/gpu": "1", "cpu": "1"}}


def test_what_is_no_pod_spec_is_an_answer_that_cannot_be_read():
    with pytest.raises(KubeError):
        planned_spec.read(b'{"containers": 5}')


def test_a_status_has_no_more_of_it_than_16_kib():
    small, large = (
        planned_spec.planned_pod(msgspec.json.encode({"nodeSelector": {"pool": "x" * size}}))
        for size in (100, planned_spec.MAX_STORED_BYTES)
    )
    assert (small.spec, small.omitted) == ({"nodeSelector": {"pool": "x" * 100}}, False)
    assert (large.spec, large.omitted) == ({}, True)
    assert planned_spec.planned_pod(None) is None
