# SPDX-License-Identifier: Apache-2.0
"""The effects of an agent that reports a wrong inventory on other nodes."""

import msgspec
import pytest
from extender_builders import OBSERVED, World, gpu_node, node, part, pod

from gpupack_crds.gpunode import MAX_GPUS
from gpupack_crds.kinds import GpuNode


def claiming(name, **changes):
    """Build a GPUNode whose first GPU has these fields, even if the CRD forbids them."""
    shown = gpu_node(name, gpus=2)
    first, *rest = shown.status.devices
    devices = (msgspec.structs.replace(first, **changes), *rest)
    status = msgspec.structs.replace(shown.status, devices=devices)
    return msgspec.structs.replace(shown, status=status)


ABSURD = {"NUMA node": {"numa_node": 40_000}, "memory": {"memory_mib": 1 << 40}}


@pytest.mark.parametrize("changes", ABSURD.values(), ids=ABSURD)
def test_a_node_of_absurd_numbers_gets_no_work_and_the_others_do(world, caplog, changes):
    world.ledger.gpus.upsert(claiming("a", **changes))
    assert world.filter(pod("p")).node_names == ["b"]
    assert "node a gets no work: its inventory is wrong: " in caplog.text


def test_an_observed_node_of_absurd_memory_gets_no_work(world, caplog):
    world.add_observed_node("c")
    shown = gpu_node("c", mode="observed", resource=OBSERVED)
    devices = claiming("c", memory_mib=1 << 40, resource=OBSERVED).status.devices
    status = msgspec.structs.replace(shown.status, devices=devices)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))
    assert "node c gets no work" in caplog.text
    assert world.filter(pod("p", asking={OBSERVED: 1}), nodes=["a", "c"]).node_names == []


def test_no_node_has_more_gpus_than_its_agent_may_list_however_many_plugins_count_them():
    many = tuple(f"example.org/gpu-{number}" for number in range(8))
    world = World(observed=many)
    shown = gpu_node("x", gpus=0, mode="observed")
    status = msgspec.structs.replace(shown.status, resources=many)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))
    world.ledger.nodes.upsert(node("x", **dict.fromkeys(many, 100)))
    devices = world.ledger.cluster.node("x").devices
    assert [device.index for device in devices] == list(range(MAX_GPUS))


def test_holders_of_more_memory_than_32_bits_count_are_held(world):
    held = {f"h{i}": part("a", 0, percent=1, memory_mib=1 << 24) for i in range(200)}
    world.ledger.gpus.upsert(gpu_node("a", lingering=held))
    assert world.left("a") == [0, 100, 100, 100]
    assert world.ledger.cluster.free_devices("a")[0].memory == 0
    world.ledger.gpus.upsert(gpu_node("a"))
    assert world.left("a") == [100, 100, 100, 100]


@pytest.mark.parametrize("field", ["index", "numaNode", "nvlinkClique", "memoryMiB"])
def test_the_api_takes_no_such_number(field):
    built = msgspec.to_builtins(gpu_node("a"))
    built["status"]["devices"][0][field] = 1 << 25
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert(built, GpuNode)


def test_a_node_whose_numbers_are_right_again_gets_work(world):
    world.ledger.gpus.upsert(claiming("a", numa_node=40_000))
    world.ledger.nodes.upsert(node("b", ready=False))
    world.ledger.gpus.upsert(gpu_node("a"))
    assert world.filter(pod("p")).node_names == ["a"]
