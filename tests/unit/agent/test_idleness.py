# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_agent.idleness import Idleness

START = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


class Node:
    """One GPU that pods hold or share, observed from time to time."""

    def __init__(self, build, **fields):
        self.build, self.idleness = build, Idleness(quiet_seconds=60)
        self.device = build.device(0, **fields)

    def pod(self, name="a", **fields):
        return self.build.pod(name, self.build.share(0), started=True, **fields)

    def refresh(self, seconds, *pods, busy=False):
        """Return since which second it is idle; None: not idle. `busy` None: not known."""
        busy_by_uuid = {} if busy is None else {"GPU-0": busy}
        (device,) = self.idleness.update([self.device], busy_by_uuid, pods, at(seconds))
        since = device.idle_since
        return None if since is None else (dt.datetime.fromisoformat(since) - START).seconds


@pytest.fixture
def node(build):
    return Node(build)


def test_a_held_idle_gpu_shows_since_when_it_is_idle_after_a_while(node):
    assert node.refresh(5, node.pod()) is None
    assert node.refresh(64, node.pod()) is None
    assert node.refresh(65, node.pod()) == 5
    assert node.refresh(7200, node.pod()) == 5


def test_work_starts_the_idle_time_again(node):
    node.refresh(0, node.pod())
    assert node.refresh(100, node.pod(), busy=True) is None
    node.refresh(110, node.pod())
    assert node.refresh(170, node.pod()) == 110


def test_a_pod_that_alternates_between_work_and_rest_is_not_idle(node):
    busy_by_uuid = [node.refresh(30 * turn, node.pod(), busy=bool(turn % 2)) for turn in range(99)]
    assert set(busy_by_uuid) == {None}


def test_a_gpu_of_unknown_activity_or_without_holders_has_no_idle_time(node):
    assert [node.refresh(seconds, node.pod(), busy=None) for seconds in (0, 999)] == [None, None]
    assert [node.refresh(seconds) for seconds in (0, 999)] == [None, None]


def test_another_holder_starts_the_idle_time_again(node):
    node.refresh(0, node.pod("a"))
    assert node.refresh(100, node.pod("b")) is None
    assert node.refresh(160, node.pod("b")) == 100


def test_a_pod_whose_containers_have_not_started_does_not_count(node):
    pulling = node.build.pod("a", node.build.share(0), started=False)
    assert [node.refresh(seconds, pulling) for seconds in (0, 999)] == [None, None]


def test_a_new_agent_starts_the_idle_time_again(node):
    node.refresh(0, node.pod())
    node.idleness = Idleness(quiet_seconds=60)
    node.device = node.build.device(0, idle_since="2026-11-21T12:00:00Z")
    assert node.refresh(3600, node.pod()) is None
    assert node.refresh(3660, node.pod()) == 3600


def test_a_simulated_gpu_is_as_idle_as_all_its_holders_say(build):
    node = Node(build, simulated=True)
    idle, working = node.pod("a", simulates_idle=True), node.pod("b")
    assert [node.refresh(seconds, idle, working) for seconds in (0, 99)] == [None, None]
    assert [node.refresh(seconds, idle) for seconds in (100, 160)] == [None, 100]


def test_the_annotation_for_simulated_idleness_does_not_affect_real_gpus(node):
    idle = node.pod("a", simulates_idle=True)
    assert [node.refresh(seconds, idle, busy=True) for seconds in (0, 99)] == [None, None]
