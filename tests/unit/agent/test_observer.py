# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_agent.foreign import ForeignDevices
from gpupack_agent.inventory.base import Findings
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.observer import Observer
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpunode import GpuHolder
from gpupack_crds.vendors import Vendor, Vendors
from gpupack_kubeclient import objects

NVIDIA = "nvidia.com/gpu"
OTHER = "example.org/gpu"
VENDORS = Vendors({"other": Vendor(resources=(OTHER,), model_labels=("other",))})
RUNNING = {"containerStatuses": [{"name": "worker", "state": {"running": {}}}]}


class Observed:
    """A node with GPU-0 and GPU-1 of another plugin."""

    def __init__(self, kubelet, resources, build):
        self.kubelet = kubelet
        self.node_mode = NodeMode((NVIDIA, OTHER))
        self.pods = PodStore((NVIDIA, OTHER))
        self.pods.replace([])
        self._build = build
        known_devices = KnownDevices()
        known_devices.update(Findings(devices=(build.device(0), build.device(1))))
        self.labels = {"other": "Model_1"}
        self.foreign = ForeignDevices(VENDORS, self._labels)
        self.observer = Observer(self.node_mode, self.pods, resources, known_devices, self.foreign)

    async def _labels(self):
        return self.labels

    def pod(self, name="a", *, resource=NVIDIA, **changes):
        """Add a running pod that requests GPUs of another plugin."""
        body = self._build.pod_json(name, **changes)
        body["spec"]["containers"][0]["resources"]["limits"] = {resource: "1"}
        body["status"] |= RUNNING
        return msgspec.convert(body, objects.Pod)

    async def holders(self):
        await self.observer.round()
        return self.observer.holders


@pytest.fixture
async def observed(kubelet, build):
    kubelet.allocatable = {NVIDIA: ["GPU-0", "GPU-1"]}
    kubelet.resource = NVIDIA
    async with PodResources.connect(kubelet.folder / "pod-resources/kubelet.sock") as resources:
        yield Observed(kubelet, resources, build)


def held(name, *uuids, uid=None):
    shares = tuple(DeviceShare(uuid=uuid, percent=100, memory_mib=1000) for uuid in uuids)
    return GpuHolder(namespace="team", name=name, uid=uid or f"uid-{name}", devices=shares)


async def test_pods_are_read_back_with_the_gpus_that_the_other_plugin_gave_them(observed):
    observed.kubelet.tokens = {"b": ["GPU-0"], "a": ["GPU-1"]}
    observed.pods.upsert(observed.pod("b"))
    observed.pods.upsert(observed.pod("a"))
    assert await observed.holders() == (held("a", "GPU-1"), held("b", "GPU-0"))


async def test_each_pod_is_queried_once(observed):
    observed.kubelet.tokens = {"a": ["GPU-1"]}
    observed.pods.upsert(observed.pod("a"))
    await observed.holders()
    assert await observed.holders() == (held("a", "GPU-1"),)
    assert observed.kubelet.gets == 1


async def test_a_deleted_or_finished_pod_holds_nothing(observed):
    observed.kubelet.tokens = {"gone": ["GPU-0"], "done": ["GPU-1"]}
    observed.pods.replace([observed.pod("gone"), observed.pod("done")])
    assert len(await observed.holders()) == 2
    observed.pods.remove(observed.pod("gone"))
    observed.pods.upsert(observed.pod("done", phase="Succeeded"))
    assert await observed.holders() == ()


async def test_a_new_pod_of_the_same_name_is_queried_again(observed):
    observed.kubelet.tokens = {"a": ["GPU-0"]}
    observed.pods.replace([observed.pod("a", uid="1")])
    await observed.holders()
    observed.kubelet.tokens = {"a": ["GPU-1"]}
    observed.pods.replace([observed.pod("a", uid="2")])
    assert await observed.holders() == (held("a", "GPU-1", uid="2"),)


async def test_a_pod_that_has_not_started_may_not_be_the_one_that_the_kubelet_knows(observed):
    observed.kubelet.tokens = {"a": ["GPU-0"]}
    waiting = msgspec.structs.replace(observed.pod("a"), status=objects.PodStatus(phase="Pending"))
    observed.pods.upsert(waiting)
    assert await observed.holders() == ()


async def test_ids_that_are_no_gpus_are_left_out(observed):
    observed.kubelet.tokens = {"a": ["GPU-0", "GPU-1::3"]}
    observed.pods.upsert(observed.pod("a"))
    assert await observed.holders() == (held("a", "GPU-0"),)


async def test_pods_of_several_plugins_are_read_back(observed):
    observed.kubelet.allocatable = {NVIDIA: ["GPU-0"], OTHER: ["GPU-1"]}
    observed.kubelet.tokens = {"a": ["GPU-0"], "b": ["GPU-1"]}
    observed.kubelet.resources = {"b": OTHER}
    observed.pods.replace([observed.pod("a"), observed.pod("b", resource=OTHER)])
    assert await observed.holders() == (held("a", "GPU-0"), held("b", "GPU-1"))
    assert observed.node_mode.resources == (NVIDIA, OTHER)
    assert [observed.node_mode.resource_of(f"GPU-{each}") for each in (0, 1)] == [NVIDIA, OTHER]


async def test_a_plugin_that_comes_to_an_observed_node_later_is_seen(observed):
    await observed.observer.round()
    observed.kubelet.allocatable[OTHER] = ["GPU-1"]
    await observed.observer.round()
    assert observed.node_mode.resources == (NVIDIA, OTHER)


async def test_an_owned_node_reads_no_holders(observed):
    observed.kubelet.allocatable = {}
    observed.kubelet.tokens = {"a": ["GPU-0"]}
    observed.pods.upsert(observed.pod("a"))
    assert await observed.holders() is None
    assert observed.kubelet.gets == 0


async def test_holders_are_unknown_before_the_pods_are_known(observed):
    observed.pods.synced = False
    assert await observed.holders() is None
    observed.pods.replace([])
    assert await observed.holders() == ()


async def test_while_the_kubelet_is_unavailable_the_holders_stay_with_one_log_line(
    observed, caplog
):
    observed.kubelet.tokens = {"a": ["GPU-0"]}
    observed.pods.upsert(observed.pod("a"))
    await observed.holders()
    await observed.kubelet.stop()
    observed.pods.upsert(observed.pod("b"))
    for _ in range(3):
        assert await observed.holders() == (held("a", "GPU-0"),)
    logged = [record for record in caplog.records if record.name == "gpupack_agent.observer"]
    assert len(logged) == 1


async def test_gpus_of_another_vendor_are_described_and_read_back(observed):
    observed.kubelet.allocatable = {OTHER: ["npu-0", "npu-1"]}
    observed.kubelet.resource = OTHER
    observed.kubelet.tokens = {"a": ["npu-1"]}
    await observed.observer.round()
    await observed.foreign.refresh()
    observed.pods.upsert(observed.pod("a", resource=OTHER))
    (holder,) = await observed.holders()
    assert [share.uuid for share in holder.devices] == ["npu-1"]
    assert {each.model for each in observed.foreign.devices} == {"Model 1"}
