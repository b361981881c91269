# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.decision.workers import is_given_up, may_run

LOST = (8, "DeletionByTaintManager")


@pytest.mark.parametrize(
    ("pod", "given_up"),
    [
        ({"disrupted": LOST, "deleted": 9}, True),
        ({"disrupted": LOST}, False),
        ({"disrupted": (8, "EvictionByEvictionAPI"), "deleted": 9}, False),
        ({"deleted": 9}, False),
        ({"disrupted": LOST, "deleted": 9, "phase": "Failed"}, False),
    ],
)
def test_a_pod_deleted_for_an_unreachable_node_is_given_up(build, pod, given_up):
    assert is_given_up(build.pod(**pod)) is given_up


@pytest.mark.parametrize(
    ("pod", "may"),
    [
        ({}, True),
        ({"deleted": 9}, False),
        ({"deleted": 9, "node": "b"}, True),
        ({"deleted": 9, "node": ""}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_a_deleted_pod_on_a_silent_node_does_not_run(build, pod, may):
    assert may_run(build.pod(**pod), silent={"a"}) is may
