# SPDX-License-Identifier: Apache-2.0
"""Pods are evicted as their budgets allow; an event names the preemptor."""

import pytest

from gpupack_extender.queueing import evictions
from gpupack_extender.queueing.evictions import Evictions
from gpupack_kubeclient.events import EventWriter, Reporter
from gpupack_scheduler.queueing.pods.conditions import Eviction


def eviction(name="web"):
    return Eviction(f"uid-{name}", "team", name, "InCohortFairSharing", "for another")


@pytest.fixture
def wanted():
    return [eviction()]


@pytest.fixture
def evicting(api, wanted, monkeypatch):
    monkeypatch.setattr(evictions, "AGAIN_SECONDS", 0.0)
    events = EventWriter(api, Reporter("gpupack.dev/scheduler", "s", "Evict"))
    return Evictions(api, lambda: wanted, events, decides=lambda: True)


def notes(server):
    return [(event["reason"], event["note"]) for event in server.events]


async def test_a_pod_is_evicted_by_its_uid_and_its_event_names_the_preemptor(evicting, server):
    await evicting.look()
    assert server.evictions == ["uid-web"]
    assert notes(server) == [("InCohortFairSharing", "evicted for another")]
    assert server.events[0]["regarding"]["kind"] == "Pod"


async def test_an_eviction_that_a_budget_refuses_is_repeated_and_reported_once(evicting, server):
    server.faults = ["budget", "budget"]
    for _ in range(3):
        await evicting.look()
    assert server.evictions == ["uid-web"] * 3
    first, last = notes(server)
    assert "a PodDisruptionBudget does not allow it now" in first[1]
    assert last[1].startswith("evicted for")


async def test_a_pod_that_is_gone_is_no_trouble(evicting, server, caplog):
    server.faults = ["gone"]
    await evicting.look()
    assert (notes(server), caplog.text) == ([], "")


async def test_an_eviction_that_is_no_longer_wanted_is_dropped(evicting, server, wanted):
    await evicting.look()
    wanted.clear()
    await evicting.look()
    assert (evicting._asked, evicting._notified) == ({}, {})


async def test_no_pod_is_evicted_twice_in_a_row(api, server, wanted):
    events = EventWriter(api, Reporter("gpupack.dev/scheduler", "s", "Evict"))
    patient = Evictions(api, lambda: wanted, events, decides=lambda: True)
    await patient.look()
    await patient.look()
    assert len(server.evictions) == 1
