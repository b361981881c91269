# SPDX-License-Identifier: Apache-2.0
"""What the agent counts of itself."""

import collections

import pytest
from prometheus_client import CollectorRegistry

from gpupack_agent.agent_metrics import AgentMetrics
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.known_devices import KnownDevices


class Written:
    def age_seconds(self):
        return 12.0


def shown(devices=None, starts=None, overruns=None):
    registry = CollectorRegistry()
    registry.register(AgentMetrics(devices or KnownDevices(), Written(), starts or {}, overruns))
    return lambda name, **labels: registry.get_sample_value(f"gpupack_agent_{name}", labels)


def test_each_outcome_is_there_from_the_start():
    value = shown(starts=collections.Counter({"held": 2}))
    assert value("container_starts_total", outcome="held") == 2
    assert value("container_starts_total", outcome="prepared") == 0


def test_shares_that_were_exceeded_are_counted_where_something_limits_them():
    assert shown(overruns={"ended": 3})("share_overruns_total", action="ended") == 3
    assert shown()("share_overruns_total", action="ended") is None


def test_the_time_without_a_scan_is_a_metric():
    devices = KnownDevices()
    assert shown(devices)("gpus_unseen_seconds") == 0
    devices.scan_failed(InventoryUnavailable("it hangs"))
    assert 0 < shown(devices)("gpus_unseen_seconds") < 5


def test_the_age_of_the_gpunode_is_a_metric():
    assert shown()("gpunode_age_seconds") == pytest.approx(12)
