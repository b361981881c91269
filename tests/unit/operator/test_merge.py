# SPDX-License-Identifier: Apache-2.0
import copy
import re

import pytest

from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests.merge import merge

OURS = {
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    "tolerations": [{"key": "a", "effect": "NoExecute"}],
    "containers": [
        {
            "name": "worker",
            "image": "ours",
            "args": ["matmul"],
            "env": [{"name": "A", "value": "1"}],
            "resources": {"limits": {"gpupack.dev/gpu": "2"}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
}


def worker(**patch):
    return merge(OURS, {"containers": [{"name": "worker", **patch}]})["containers"][0]


@pytest.mark.parametrize(
    ("patch", "field", "expected"),
    [
        ({"image": "theirs"}, "image", "theirs"),
        ({"args": ["x"]}, "args", ["x"]),
        (
            {"env": [{"name": "B", "value": "2"}]},
            "env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        ),
        ({"env": [{"name": "A", "value": "9"}]}, "env", [{"name": "A", "value": "9"}]),
        (
            {"resources": {"limits": {"cpu": "4"}}},
            "resources",
            {"limits": {"gpupack.dev/gpu": "2", "cpu": "4"}},
        ),
        (
            {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            "volumeMounts",
            [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/data"}],
        ),
    ],
)
def test_a_container_of_the_same_name_is_merged(patch, field, expected):
    assert worker(**patch)[field] == expected


def test_other_containers_are_appended():
    found = merge(OURS, {"containers": [{"name": "logger", "image": "x"}]})
    assert [container["name"] for container in found["containers"]] == ["worker", "logger"]


def test_maps_are_merged_and_scalars_replaced():
    found = merge(OURS, {"securityContext": {"runAsUser": 7}, "priorityClassName": "high"})
    assert found["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 7,
    }
    assert found["priorityClassName"] == "high"


def test_tolerations_are_appended_once():
    same = {"key": "a", "effect": "NoExecute"}
    found = merge(OURS, {"tolerations": [{"key": "b"}, same]})
    assert found["tolerations"] == [{"key": "b"}, same]


@pytest.mark.parametrize(
    "longer",
    [
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600},
        {"key": "a", "operator": "Exists"},
        {"operator": "Exists"},
    ],
)
def test_a_toleration_of_the_template_replaces_the_default_for_the_same_taint(longer):
    assert merge(OURS, {"tolerations": [longer]})["tolerations"] == [longer]


def test_a_toleration_of_another_effect_leaves_the_default():
    other = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    found = merge(OURS, {"tolerations": [other]})
    assert found["tolerations"] == [*OURS["tolerations"], other]


def test_a_volume_from_the_same_source_is_merged():
    found = merge(OURS, {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]})
    assert found["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_a_volume_with_another_source_replaces_that_of_gpupack():
    theirs = {"name": "shm", "hostPath": {"path": "/dev/shm"}}
    assert merge(OURS, {"volumes": [theirs]})["volumes"] == [theirs]


def test_neither_side_is_changed():
    base, patch = copy.deepcopy(OURS), {"containers": [{"name": "worker", "env": [{"name": "B"}]}]}
    merge(base, copy.deepcopy(patch))["containers"][0]["env"].append("x")
    assert base == OURS


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"volumes": [{"emptyDir": {}}]}, "volumes[0]: name"),
        ({"containers": [{"name": "worker"}, {"image": "x"}]}, "containers[1]: name"),
        (
            {"containers": [{"name": "worker", "volumeMounts": ["data"]}]},
            "containers[0].volumeMounts[0]: mountPath",
        ),
        (
            {"containers": [{"name": "worker", "volumeMounts": [{"name": "data"}]}]},
            "containers[0].volumeMounts[0]: mountPath",
        ),
        ({"imagePullSecrets": [{"name": ["x"]}]}, "imagePullSecrets[0]: name"),
    ],
)
def test_an_item_without_its_merge_key_is_named_in_the_error(patch, field):
    base = OURS | {"imagePullSecrets": [{"name": "registry"}]}
    with pytest.raises(TemplateInvalid, match=re.escape(f"spec.template.spec.{field} is missing")):
        merge(base, patch)
