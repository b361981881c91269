# SPDX-License-Identifier: Apache-2.0
"""Checks of Node objects, and waiting."""

import pytest

from gpupack_devcluster.errors import NotInTime
from gpupack_devcluster.kubectl import is_ready, wait_until

NOON = 1767268800.0  # 2026-01-01T12:00:00Z


def node(status, heartbeat):
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    return {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}, condition]}}


def test_a_node_is_ready_by_a_heartbeat_of_this_start():
    assert is_ready(node("True", "2026-01-01T12:00:00Z"), since=NOON + 0.9)


def test_a_heartbeat_from_before_the_start_does_not_count():
    assert not is_ready(node("True", "2026-01-01T11:59:59Z"), since=NOON)


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_not_ready(status):
    assert not is_ready(node(status, "2026-01-01T12:00:00Z"), since=0)


def test_a_node_that_has_just_registered_has_no_conditions():
    assert not is_ready({"metadata": {"name": "n"}}, since=0)


def test_a_timeout_names_what_did_not_become_ready():
    with pytest.raises(NotInTime, match="the moon: not after 0 s"):
        wait_until(lambda: False, what="the moon", seconds=0, pause_seconds=0)


def test_waiting_ends_as_soon_as_the_condition_holds():
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), what="it", seconds=5, pause_seconds=0)
    assert next(answers, None) is None
