# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_agent.idleness import Idleness

START = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


class Node:
    """One GPU that pods hold, or share, looked at every now and then."""

    def __init__(self, build, **fields):
        self.build, self.idleness = build, Idleness(quiet_seconds=60)
        self.device = build.device(0, **fields)

    def pod(self, name="a", **fields):
        return self.build.pod(name, self.build.share(0), started=True, **fields)

    def look(self, seconds, *pods, busy=False):
        """Since which second it is idle; None: nothing is said. `busy` None: it does not tell."""
        told = {} if busy is None else {"GPU-0": busy}
        (device,) = self.idleness.see([self.device], told, pods, at(seconds))
        since = device.idle_since
        return None if since is None else (dt.datetime.fromisoformat(since) - START).seconds


@pytest.fixture
def node(build):
    return Node(build)


def test_a_gpu_that_is_held_and_runs_nothing_is_told_with_its_first_moment_after_a_while(node):
    assert node.look(5, node.pod()) is None
    assert node.look(64, node.pod()) is None
    assert node.look(65, node.pod()) == 5
    assert node.look(7200, node.pod()) == 5


def test_work_begins_the_time_anew(node):
    node.look(0, node.pod())
    assert node.look(100, node.pod(), busy=True) is None
    node.look(110, node.pod())
    assert node.look(170, node.pod()) == 110


def test_a_pod_that_works_and_rests_by_turns_is_no_news(node):
    told = [node.look(30 * turn, node.pod(), busy=bool(turn % 2)) for turn in range(99)]
    assert set(told) == {None}


def test_nothing_is_said_of_a_gpu_that_does_not_tell_or_that_nobody_holds(node):
    assert [node.look(seconds, node.pod(), busy=None) for seconds in (0, 999)] == [None, None]
    assert [node.look(seconds) for seconds in (0, 999)] == [None, None]


def test_another_holder_begins_with_a_time_of_its_own(node):
    node.look(0, node.pod("a"))
    assert node.look(100, node.pod("b")) is None
    assert node.look(160, node.pod("b")) == 100


def test_a_pod_whose_containers_have_not_started_does_not_count(node):
    pulling = node.build.pod("a", node.build.share(0), started=False)
    assert [node.look(seconds, pulling) for seconds in (0, 999)] == [None, None]


def test_a_new_agent_begins_anew_since_nobody_has_looked_meanwhile(node):
    node.look(0, node.pod())
    node.idleness = Idleness(quiet_seconds=60)
    node.device = node.build.device(0, idle_since="2026-11-21T12:00:00Z")
    assert node.look(3600, node.pod()) is None
    assert node.look(3660, node.pod()) == 3600


def test_a_simulated_gpu_is_as_idle_as_all_its_holders_say(build):
    node = Node(build, simulated=True)
    idle, working = node.pod("a", simulates_idle=True), node.pod("b")
    assert [node.look(seconds, idle, working) for seconds in (0, 99)] == [None, None]
    assert [node.look(seconds, idle) for seconds in (100, 160)] == [None, 100]


def test_a_real_gpu_does_not_listen_to_what_a_pod_says_of_simulated_ones(node):
    idle = node.pod("a", simulates_idle=True)
    assert [node.look(seconds, idle, busy=True) for seconds in (0, 99)] == [None, None]
