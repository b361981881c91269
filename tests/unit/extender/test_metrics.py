# SPDX-License-Identifier: Apache-2.0
"""What the metrics say of the ledger."""

import prometheus_client
from extender_builders import gpu_node, part, pod, share_limits, whole

from gpupack_extender.metrics import LedgerCollector


def metrics(world):
    registry = prometheus_client.CollectorRegistry()
    registry.register(LedgerCollector(world.ledger, {}))
    return prometheus_client.generate_latest(registry).decode()


def test_gpus_are_told_by_what_is_left_of_them(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.bind(pod("q", asking=share_limits(30)), "a")
    world.ledger.gpus.upsert(gpu_node("b", failed=[3]))
    text = metrics(world)
    for state, number in {"free": 5, "shared": 1, "held": 1, "unhealthy": 1}.items():
        assert f'gpupack_extender_devices{{state="{state}"}} {number}.0' in text


def test_lingering_pods_are_counted(world):
    lingering = {"p": whole("a", 0), "q": part("a", 1, percent=10)}
    world.ledger.gpus.upsert(gpu_node("a", lingering=lingering))
    assert "gpupack_extender_lingering_pods 2.0" in metrics(world)
