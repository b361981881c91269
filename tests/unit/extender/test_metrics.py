# SPDX-License-Identifier: Apache-2.0
"""What the metrics say of the ledger."""

import time
import types

import prometheus_client
from extender_builders import gpu_node, part, pod, share_limits, uuid, whole

from gpupack_extender.metrics import LedgerCollector
from gpupack_placement import Cluster, Device, MiB, Node


def metrics(world):
    registry = prometheus_client.CollectorRegistry()
    registry.register(LedgerCollector(world.ledger, {}))
    return prometheus_client.generate_latest(registry).decode()


def test_gpus_are_counted_by_their_free_part(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.bind(pod("q", asking=share_limits(30)), "a")
    maintenance = {"reason": "fan", "gpus": [uuid("b", 2), uuid("b", 3)]}
    world.ledger.gpus.upsert(gpu_node("b", failed=[3], maintenance=[maintenance]))
    text = metrics(world)
    states = {"free": 4, "shared": 1, "held": 1, "unhealthy": 1, "maintenance": 1}
    for state, number in states.items():
        assert f'gpupack_extender_devices{{state="{state}"}} {number}.0' in text


def test_lingering_pods_are_counted(world):
    lingering = {"p": whole("a", 0), "q": part("a", 1, percent=10)}
    world.ledger.gpus.upsert(gpu_node("a", lingering=lingering))
    assert "gpupack_extender_lingering_pods 2.0" in metrics(world)


def node(number):
    devices = tuple(Device(f"{number}-{i}", i, "H200", MiB(1 << 17)) for i in range(8))
    return Node(str(number), devices=devices)


def test_a_large_cluster_is_counted_within_milliseconds():
    cluster = Cluster(node(number) for number in range(5_000))
    collector = LedgerCollector(types.SimpleNamespace(cluster=cluster), {})
    times = []
    for _ in range(5):
        start = time.thread_time()
        (sample, *_) = collector._devices().samples
        times.append(time.thread_time() - start)
    assert (sample.labels, sample.value) == ({"state": "free"}, 40_000)
    assert min(times) < 0.01
