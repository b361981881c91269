# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import dataclasses

import msgspec
import pytest

from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.foreign import ForeignDevices
from gpupack_agent.gpunode import GpuNodeWriter
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.inventory.layout import MigGpu, Place, Profile
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.layouts import Layouts
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.observer import Observer
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import NodeState
from gpupack_agent.report import Report, describe
from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus
from gpupack_crds.vendors import Vendor, Vendors
from gpupack_kubeclient import errors, heartbeat, objects

PATH = f"{names.API_PREFIX}/gpunodes/node-1"
WRITE = ("PUT", f"{PATH}/status")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/s/leases/gpunode-node-1"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node-1"}


NVIDIA, OTHER = OBSERVED = ("nvidia.com/gpu", "example.org/gpu")


NODE = "/api/v1/nodes/node-1"


@pytest.fixture
def agents(cluster, cgroups, tmp_path, monkeypatch):
    """Makes writers as agents do that follow each other on one node."""
    monkeypatch.setattr("gpupack_agent.gpunode.COMPARE_SECONDS", 0.05)

    def start(*devices, **found):
        specs = SpecFolder(tmp_path / "cdi")
        specs.load()
        known_devices = KnownDevices()
        known_devices.update(Findings(devices=devices, **found))
        node = NodeState(PodStore(OBSERVED), specs, Cgroups(cgroups.root), known_devices)
        node_mode = NodeMode(OBSERVED)
        observer = Observer(node_mode, node.pods, kubelet=None, known_devices=known_devices)
        layouts = Layouts(node, node_mode, allowed=True)
        return GpuNodeWriter(cluster.api, Report(node, node_mode, observer, layouts), node="node-1")

    return start


@pytest.fixture
async def writer(agents, build):
    return agents(build.device(0), driver_version="1", cuda_version="2")


@pytest.fixture
def node(writer):
    return writer.report.node


LINGERS = {
    "namespace": "team",
    "name": "a",
    "uid": "uid-a",
    "devices": [{"uuid": "GPU-0", "percent": 100, "memoryMiB": 1000}],
}


def pod(body):
    return msgspec.convert(body, objects.Pod)


def written(cluster):
    return cluster.server.objects[PATH]["status"]


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(coroutine):
    task = asyncio.create_task(coroutine)
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_status_sums_its_devices_up(build):
    devices = (build.device(0), build.device(1, health="Failed"), build.device(2, simulated=True))
    found = describe(Findings(devices=devices), NodeMode(()))
    assert (found.gpus, found.healthy, found.model) == (3, 2, "NVIDIA H200")
    assert (found.simulated, found.mode) == (True, "owned")


async def test_a_missing_gpunode_is_created_and_filled(cluster, writer):
    await writer.restore()
    assert written(cluster)["devices"][0]["uuid"] == "GPU-0"
    assert written(cluster)["driverVersion"] == "1"
    assert "observedAt" in written(cluster)


async def test_the_node_owns_its_gpunode(cluster, writer):
    await writer.restore()
    assert cluster.server.objects[PATH]["metadata"]["ownerReferences"] == [OWNER]


async def test_without_its_node_no_gpunode_is_created(cluster, writer):
    del cluster.server.objects[NODE]
    with pytest.raises(errors.NotFound):
        await writer.restore()
    assert PATH not in cluster.server.objects


async def test_a_gpunode_deleted_with_its_node_keeps_past_errors(cluster, writer, node, build):
    await writer.restore()
    node.known_devices.update(Findings(devices=(build.device(1),)))
    del cluster.server.objects[PATH]
    cluster.server.objects[NODE]["metadata"]["uid"] = "uid-of-its-successor"
    await writer.restore()
    assert [each["uuid"] for each in written(cluster)["devices"]] == ["GPU-0", "GPU-1"]


async def test_measurements_of_other_components_stay_in_the_status(cluster, writer, node, build):
    await writer.restore()
    condition = {"type": "InventoryRejected", "status": "True", "reason": "DuplicateGpus"}
    condition |= {"message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    cluster.server.objects[PATH]["status"]["conditions"] = [condition]
    node.known_devices.update(Findings(devices=(build.device(1),)))
    await writer.refresh()
    assert written(cluster)["conditions"] == [condition]


async def test_a_node_without_pod_cgroups_has_a_condition_until_there_are_some(
    cluster, writer, node, cgroups
):
    (cgroups.root / "kubepods").rmdir()
    node.cgroups.state("uid-a")
    await writer.restore()
    (condition,) = written(cluster)["conditions"]
    assert (condition["type"], condition["status"]) == ("PodCgroupsMissing", "True")
    assert "set kubelet.cgroupRoot" in condition["message"]
    (cgroups.root / "kubepods").mkdir()
    node.cgroups.state("uid-a")
    await writer.refresh()
    (condition,) = written(cluster)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "PodCgroupsFound")


async def test_a_gpunode_that_is_right_is_not_written_again(cluster, agents, build):
    await agents(build.device(0)).restore()
    await agents(build.device(0)).restore()
    assert cluster.server.writes.count(WRITE) == 1


async def test_a_change_is_written_when_it_happens(cluster, writer, node, build):
    async with running(writer.run()):
        await writer.written.wait()
        node.known_devices.update(
            Findings(devices=(build.device(0, health="Failed", cause="XID 79"),))
        )
        await until(lambda: cluster.server.objects[PATH]["status"].get("healthy", 0) == 0)
    assert cluster.server.objects[PATH]["status"]["devices"][0]["cause"] == "XID 79"


async def test_a_gpu_that_the_last_agent_saw_and_this_one_does_not_is_reported(
    cluster, agents, build
):
    await agents(build.device(0)).restore()
    await agents(build.device(1)).restore()
    assert [(each["uuid"], each.get("health")) for each in written(cluster)["devices"]] == [
        ("GPU-0", "Failed"),
        ("GPU-1", None),
    ]


async def test_deleting_the_gpunode_forgets_a_gpu_that_disappeared(cluster, writer, node, build):
    await writer.restore()
    node.known_devices.update(Findings(devices=(build.device(1),)))
    del cluster.server.objects[PATH]
    await writer.restore()
    assert [each["uuid"] for each in written(cluster)["devices"]] == ["GPU-1"]


async def test_a_gpunode_that_was_deleted_and_created_again_clears_past_errors(
    cluster, writer, node, build
):
    await writer.restore()
    node.known_devices.update(Findings(devices=(build.device(1),)))
    old = cluster.server.objects.pop(PATH)
    cluster.server.objects[PATH] = {
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "metadata": old["metadata"] | {"uid": "another"},
        "spec": {},
    }
    await writer.refresh()
    assert [each["uuid"] for each in written(cluster)["devices"]] == ["GPU-1"]


async def test_a_pod_deleted_by_force_is_listed_while_its_processes_run(
    cluster, writer, node, build, cgroups
):
    node.specs.write(build.record("a", build.share(0)), Injection(), simulated=True)
    cgroups.add("a")
    node.pods.upsert(pod(build.pod_json("a", build.share(0))))
    node.pods.synced = True
    async with running(writer.run()):
        await writer.written.wait()
        assert "holders" not in written(cluster)
        node.pods.remove(pod(build.pod_json("a")))
        await until(lambda: "holders" in written(cluster))
        assert written(cluster)["holders"] == [LINGERS]
        cgroups.add("a", populated=False)
        await until(lambda: "holders" not in written(cluster))
    assert cluster.server.writes.count(WRITE) == 3


async def test_a_new_agent_keeps_reported_terminating_holders_until_it_knows_the_pods(
    cluster, agents, build, cgroups
):
    first = agents(build.device(0))
    first.report.node.specs.write(build.record("a", build.share(0)), Injection(), simulated=True)
    cgroups.add("a")
    first.report.node.pods.replace([])
    await first.restore()
    second = agents(build.device(0))
    await second.restore()
    second.report.node.pods.replace([])
    await second.restore()
    assert written(cluster)["holders"] == [LINGERS]
    assert cluster.server.writes.count(WRITE) == 1


async def test_a_requested_layout_is_announced_before_the_gpu_is_partitioned(
    cluster, agents, build, monkeypatch
):
    monkeypatch.setattr("gpupack_agent.gpunode.LAYOUT_SECONDS", 0.05)
    monkeypatch.setattr("gpupack_agent.layouts.SETTLED_SECONDS", 0.1)
    gpu = MigGpu("GPU-9", {"1g.18gb": Profile(number=19, size=1, starts=(0, 1), max_count=2)})
    writer = agents(build.device(0), mig_gpus=(gpu,))
    layouts, cuts = writer.report.layouts, []
    writer.report.node.pods.replace([])

    class Cutter:
        async def partition(self, uuid, places):
            cuts.append((uuid, places, written(cluster)["migGpus"]))

    async with running(writer.run()):
        await writer.written.wait()
        assert written(cluster)["migGpus"] == [{"gpu": "GPU-9", "profiles": ["1g.18gb"]}]
        wanted = {"migLayouts": [{"gpu": "GPU-9", "profiles": ["1g.18gb"]}]}
        cluster.server.objects[PATH]["spec"] = wanted
        await until(lambda: written(cluster)["migGpus"][0].get("changing"))
        async with asyncio.timeout(30):
            while not await layouts.round(Cutter()):
                await asyncio.sleep(0.01)
    ((uuid, places, announced),) = cuts
    assert (uuid, places) == ("GPU-9", (Place("1g.18gb", 0, 1),))
    assert announced[0]["changing"]


async def test_before_the_pods_are_known_none_counts_as_deleted(cluster, writer, node, build):
    node.specs.write(build.record("a", build.share(0)), Injection(), simulated=True)
    await writer.restore()
    assert "holders" not in written(cluster)


async def test_an_observed_node_stays_observed_over_a_restart_of_the_agent(cluster, agents, build):
    first = agents(build.device(0))
    first.report.node_mode.update({NVIDIA: {"GPU-0"}})
    await first.restore()
    assert (written(cluster)["mode"], written(cluster)["resources"]) == ("observed", [NVIDIA])
    second = agents(build.device(0))
    second.report.node_mode.update({})
    await second.restore()
    assert written(cluster)["mode"] == "observed"
    assert not second.report.node_mode.may_register()


async def test_each_gpu_in_gpunode_has_its_resource(cluster, agents, build):
    first = agents(build.device(0), build.device(1))
    first.report.node_mode.update({NVIDIA: {"GPU-0"}, OTHER: {"GPU-1"}})
    await first.restore()
    for writer in (first, agents(build.device(0), build.device(1))):
        await writer.restore()
        assert written(cluster)["resources"] == [NVIDIA, OTHER]
        assert [each["resource"] for each in written(cluster)["devices"]] == [NVIDIA, OTHER]


async def test_deleting_the_gpunode_ends_observation(cluster, writer):
    node_mode = writer.report.node_mode
    node_mode.update({NVIDIA: {"GPU-0"}})
    await writer.restore()
    del cluster.server.objects[PATH]
    await writer.refresh()
    assert "mode" not in written(cluster)
    assert node_mode.observes


async def test_an_outage_of_the_api_server_is_survived(cluster, writer):
    cluster.server.down = True
    async with running(writer.run()):
        await asyncio.sleep(0.1)
        cluster.server.down = False
        await asyncio.wait_for(writer.written.wait(), 30)


async def test_the_heartbeat_is_renewed_and_survives_an_outage(cluster):
    path = LEASE
    cluster.server.down = True
    beating = heartbeat.beat_forever(
        cluster.api,
        "gpunode-node-1",
        node="node-1",
        namespace="s",
        holder="agent-x",
        duration_seconds=0.2,
    )
    async with running(beating):
        await asyncio.sleep(0.1)
        cluster.server.down = False
        await until(lambda: path in cluster.server.objects)
        created = len(cluster.server.writes)
        await until(lambda: len(cluster.server.writes) > created + 1)
    assert cluster.server.objects[path]["spec"]["holderIdentity"] == "agent-x"
    assert cluster.server.objects[path]["metadata"]["ownerReferences"] == [OWNER]


async def test_a_lease_without_an_owner_is_given_to_the_node(cluster):
    cluster.server.put(LEASE, {"metadata": {"name": "gpunode-node-1", "resourceVersion": "1"}})
    beat = {"node": "node-1", "namespace": "s", "holder": "x", "duration_seconds": 1}
    for _ in range(2):
        await heartbeat.beat(cluster.api, "gpunode-node-1", **beat)
    assert cluster.server.objects[LEASE]["metadata"]["ownerReferences"] == [OWNER]
    assert len(cluster.server.writes) == 3


@pytest.mark.parametrize("is_there", [False, True], ids=["no Node", "no right to read it"])
async def test_a_lease_that_cannot_be_given_its_owner_is_renewed_and_that_is_logged_once(
    cluster, caplog, monkeypatch, is_there
):
    monkeypatch.setattr("gpupack_kubeclient.heartbeat.BEATS_PER_DURATION", 50)
    if is_there:
        cluster.server.forbidden.add(NODE)
    else:
        del cluster.server.objects[NODE]
    meta = {"name": "gpunode-node-1", "namespace": "s", "resourceVersion": "1"}
    cluster.server.put(LEASE, {"metadata": meta})
    beating = heartbeat.beat_forever(
        cluster.api,
        "gpunode-node-1",
        node="node-1",
        namespace="s",
        holder="x",
        duration_seconds=1,
    )
    async with running(beating):
        await until(lambda: len(cluster.server.writes) >= 4)
    assert cluster.server.objects[LEASE]["spec"]["holderIdentity"] == "x"
    (message,) = [record.message for record in caplog.records]
    assert message.startswith("Lease gpunode-node-1 is renewed, and has no owner")


async def test_without_its_node_no_lease_is_created(cluster):
    del cluster.server.objects[NODE]
    beat = heartbeat.beat(
        cluster.api, "gpunode-node-1", node="node-1", namespace="s", holder="x", duration_seconds=1
    )
    with pytest.raises(errors.NotFound):
        await beat
    assert cluster.server.writes == [("PATCH", LEASE)]


async def test_the_use_of_gpus_is_written_soon_and_not_for_each_pod(
    writer, node, cluster, build, monkeypatch
):
    node.pods.replace([])
    await writer.restore()
    node.pods.upsert(msgspec.convert(build.pod_json("a", build.share(0)), objects.Pod))
    assert not writer.is_due()
    monkeypatch.setattr("gpupack_agent.gpunode.USAGE_SECONDS", 0.0)
    assert writer.is_due()
    await writer.refresh()
    status = cluster.server.objects[PATH]["status"]
    assert (status["held"], status["heldBy"]) == (1, "team/a")


def test_gpus_have_limited_shares_while_their_supervisor_lives(writer, build, folder):
    sliced = build.device(1, mig_parent="GPU-9")
    writer.report.node.known_devices.update(
        Findings(devices=(build.device(0), sliced, build.device(2, simulated=True)))
    )
    mps = MpsFolder(folder)
    report = dataclasses.replace(writer.report, mps=mps)

    def limits():
        return [device.limits for device in report.status(GpuNodeStatus()).devices]

    assert limits() == ["None", "None", "None"]
    mps.write_sign_of_life()
    assert limits() == ["MPS", "None", "None"]
    mps.remove_sign_of_life()
    assert limits() == ["None", "None", "None"]


def test_gpus_of_other_vendors_are_listed_with_those_of_the_driver(build):
    theirs = msgspec.structs.replace(build.device(7), resource="amd.com/gpu", model="MI300X")
    node_mode = NodeMode(("amd.com/gpu",), others=("amd.com/gpu",))
    node_mode.update({"amd.com/gpu": {"GPU-7"}})
    found = describe(Findings(devices=(build.device(0),)), node_mode, foreign=(theirs,))
    assert [each.resource for each in found.devices] == [names.GPU, "amd.com/gpu"]
    assert found.model == "MI300X, NVIDIA H200"
    assert found.resource_counts == f"{names.GPU}: 1, amd.com/gpu: 1"


def test_gpus_of_other_vendors_that_gpunode_recorded_are_not_missed_by_the_driver(agents, build):
    report = agents().report
    amd = Vendor(resources=("amd.com/gpu",))
    foreign = ForeignDevices(Vendors({"amd": amd}), dict)
    report = dataclasses.replace(
        report,
        observer=Observer(
            report.node_mode, report.node.pods, None, report.node.known_devices, foreign
        ),
    )
    theirs = msgspec.structs.replace(build.device(7), resource="amd.com/gpu")
    report.restore(GpuNodeStatus(devices=(build.device(0), theirs)))
    assert set(report.node.known_devices.devices) == {"GPU-0"}
