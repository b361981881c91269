# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import time
import types

import msgspec
import pytest

from gpupack_agent import liveness
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.device_plugin import DevicePlugin
from gpupack_agent.housekeeping import Housekeeping
from gpupack_agent.identity import ContainerFinder
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.plugin_servicer import PluginServicer
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import NodeState
from gpupack_crds import names
from gpupack_kubeclient import objects


def device_plugin(resource, prefix, tokens_per_gpu, *, complete=True):
    registration = types.SimpleNamespace(complete=complete)
    return DevicePlugin(
        PluginServicer(resource, prepare=None),
        registration,
        prefix=prefix,
        tokens_per_gpu=tokens_per_gpu,
    )


@pytest.fixture
def housekeeping(build, cgroups, tmp_path):
    """A node with two GPUs, the second of which failed."""
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0), build.device(1, health="Failed"))))
    node = NodeState(PodStore(), SpecFolder(tmp_path / "cdi"), Cgroups(cgroups.root), known_devices)
    return Housekeeping(
        node=node,
        container_finder=ContainerFinder(node.pods, kubelet=None, api=None),
        device_plugins=(
            device_plugin(names.GPU, "gpu", 1),
            device_plugin(names.GPU_SHARE, "share", 20),
        ),
        node_mode=NodeMode(()),
        probe_file=tmp_path / "alive",
    )


def give(housekeeping, record):
    housekeeping.node.specs.write(record, Injection(), simulated=True)


def test_specs_of_dead_pods_are_collected_and_those_of_live_ones_stay(housekeeping, build, cgroups):
    give(housekeeping, build.record("dead", build.share(0), tokens=["gpu-0"]))
    give(housekeeping, build.record("alive", build.share(1), tokens=["gpu-1"]))
    cgroups.add("alive")
    housekeeping.round()
    assert [record.name for record in housekeeping.node.specs.records] == ["alive"]


def test_the_spec_of_a_finished_pod_goes_with_its_last_process(housekeeping, build, cgroups):
    give(housekeeping, build.record("a"))
    body = build.pod_json("a", build.share(), phase="Succeeded")
    housekeeping.node.pods.upsert(msgspec.convert(body, objects.Pod))
    cgroups.add("a")
    housekeeping.round()
    assert len(housekeeping.node.specs.records) == 1
    cgroups.add("a", populated=False)
    housekeeping.round()
    assert housekeeping.node.specs.records == ()


def test_a_failed_gpu_makes_one_free_device_token_unhealthy(housekeeping, build, cgroups):
    give(housekeeping, build.record("a", build.share(0), tokens=["gpu-1"]))
    cgroups.add("a")
    housekeeping.round()
    assert [(each.id, each.healthy) for each in housekeeping.device_plugins[0].plugin.tokens] == [
        ("gpu-0", False),
        ("gpu-1", True),
    ]


def unhealthy(housekeeping):
    """How many device tokens of each resource are Unhealthy for the kubelet."""
    published = [device_plugin.plugin.tokens for device_plugin in housekeeping.device_plugins]
    return [sum(not token.healthy for token in tokens) for tokens in published]


def test_there_are_twenty_slots_for_shares_of_each_gpu(housekeeping):
    housekeeping.round()
    assert [len(device_plugin.plugin.tokens) for device_plugin in housekeeping.device_plugins] == [
        2,
        40,
    ]
    assert unhealthy(housekeeping) == [1, 20]


def test_shares_of_a_failed_gpu_keep_their_slots_and_it_is_not_to_be_had_whole(
    housekeeping, build, cgroups
):
    share = build.share(1, percent=30)
    give(housekeeping, build.record("a", share, tokens=["share-39"]))
    cgroups.add("a")
    housekeeping.round()
    assert unhealthy(housekeeping) == [1, 19]
    assert housekeeping.device_plugins[1].plugin.tokens[39].healthy


def test_the_agent_is_ready_once_both_resources_are_registered(housekeeping):
    gpus = device_plugin(names.GPU, "gpu", 1)
    shares = device_plugin(names.GPU_SHARE, "share", 20, complete=False)
    half = dataclasses.replace(housekeeping, device_plugins=(gpus, shares))
    half.round()
    assert (
        liveness.problem(housekeeping.probe_file, ready=True) == "not registered with the kubelet"
    )


def test_an_agent_that_only_observes_is_ready_without_a_registration(housekeeping):
    gpus = device_plugin(names.GPU, "gpu", 1, complete=False)
    node_mode = NodeMode(("nvidia.com/gpu",))
    node_mode.update({"nvidia.com/gpu": {"GPU-0"}})
    dataclasses.replace(housekeeping, device_plugins=(gpus,), node_mode=node_mode).round()
    assert liveness.problem(housekeeping.probe_file, ready=True) == ""


def test_a_round_leaves_a_sign_of_life(housekeeping):
    housekeeping.round()
    assert liveness.problem(housekeeping.probe_file, ready=True) == ""


def test_a_gpu_wants_mps_while_limited_shares_of_it_are_held(housekeeping, build, cgroups, folder):
    mps = MpsFolder(folder)
    tidy = dataclasses.replace(housekeeping, mps=mps)
    limited = msgspec.structs.replace(build.share(0, 40, 100), isolation="limited")
    give(tidy, build.record("a", limited, tokens=["share-0"]))
    cgroups.add("a")
    long_ago = time.time() - 100
    for uuid in ("GPU-0", "GPU-1"):
        mps.request(uuid)
        os.utime(folder / "wanted" / uuid, (long_ago, long_ago))
    tidy.round()
    assert mps.requested() == {"GPU-0"}
    (folder / "wanted" / "GPU-0").unlink()
    tidy.round()
    assert mps.requested() == {"GPU-0"}
