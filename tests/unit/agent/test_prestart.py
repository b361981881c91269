# SPDX-License-Identifier: Apache-2.0
import asyncio
import dataclasses
import json
import socket

import msgspec
import pytest

from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.errors import CallAbandoned, InventoryUnavailable, StartRefused
from gpupack_agent.identity import ContainerFinder
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.threads import NO_THREAD_PERCENTAGES, ThreadPercentages
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import NodeState, PreStart
from gpupack_agent.settings import PreStartSettings
from gpupack_crds import names
from gpupack_kubeclient import objects


class Plain:
    def injection(self, _uuids):
        return Injection()


class World:
    """A node with four GPUs and the pods that a test puts there."""

    def __init__(self, *, build, cluster, kubelet, resources, cgroups, cdi):
        self.build, self.cluster, self.kubelet, self.cgroups = build, cluster, kubelet, cgroups
        self.cdi = cdi
        known_devices = KnownDevices()
        devices = tuple(build.device(index, simulated=True) for index in range(4))
        known_devices.update(Findings(devices=devices))
        self.node = NodeState(PodStore(), SpecFolder(cdi), Cgroups(cgroups.root), known_devices)
        self.resources = resources
        self.find_containers()
        self.mps, self.thread_percentages = None, NO_THREAD_PERCENTAGES
        self.wait(seconds=1.0)

    def find_containers(self):
        """The finder of an agent that has seen no start."""
        self.container_finder = ContainerFinder(self.node.pods, self.resources, self.cluster.api)

    def wait(self, *, seconds):
        """How long a start may wait: long for what must come, short for what must not."""
        settings = PreStartSettings(wait_seconds=seconds, poll_seconds=0.02)
        self.prestart = PreStart(
            self.node,
            self.container_finder,
            Plain(),
            settings,
            self.mps,
            thread_percentages=self.thread_percentages,
        )

    def bind(self, name, *shares, tokens, uid=None, resource=names.GPU):
        """A pod that is bound, admitted by the kubelet, and has its sandbox.

        Its device tokens are a list of one container's, or a dictionary by container.
        """
        by_container = tokens if isinstance(tokens, dict) else {"worker": tokens}
        counts = {container: len(theirs) for container, theirs in by_container.items()}
        body = self.build.pod_json(name, *shares, uid=uid, gpus=counts)
        for container in body["spec"]["containers"]:
            container["resources"]["limits"] = {resource: str(counts[container["name"]])}
        self.cluster.server.add_pod(body)
        self.node.pods.upsert(msgspec.convert(body, objects.Pod))
        self.kubelet.tokens[name] = tokens
        self.kubelet.resources[name] = resource
        self.cgroups.add((uid or f"uid-{name}").removeprefix("uid-"))

    def restart_agent(self):
        """Another agent knows only the specs of the folder."""
        specs = SpecFolder(self.cdi)
        specs.load()
        self.node = dataclasses.replace(self.node, specs=specs)
        self.wait(seconds=1.0)

    def force_delete(self, name):
        """The API forgets the pod, the kubelet frees its device tokens, its processes live on."""
        path = f"/api/v1/namespaces/team/pods/{name}"
        body = self.cluster.server.objects.pop(path)
        self.node.pods.remove(msgspec.convert(body, objects.Pod))
        self.kubelet.tokens.pop(name)

    def bind_share(self, name, slot, **share):
        """A pod with a share of GPU-0."""
        given = self.build.share(0, **share)
        self.bind(name, given, tokens=[slot], resource=names.GPU_SHARE)

    async def start(self, *tokens, active=lambda: True):
        return await self.prestart.prepare(names.GPU, frozenset(tokens), active=active)

    async def start_share(self, slot):
        return await self.prestart.prepare(names.GPU_SHARE, frozenset([slot]), active=lambda: True)

    def specs(self):
        return [json.loads(path.read_text()) for path in self.cdi.glob("*.json")]


@pytest.fixture
async def world(build, cluster, kubelet, cgroups, tmp_path):
    async with PodResources.connect(kubelet.folder / "pod-resources/kubelet.sock") as resources:
        yield World(
            build=build,
            cluster=cluster,
            kubelet=kubelet,
            resources=resources,
            cgroups=cgroups,
            cdi=tmp_path / "cdi",
        )


async def test_a_container_gets_the_devices_of_its_pods_annotation(world, build):
    world.bind("a", build.share(2), tokens=["gpu-0"])
    await world.start("gpu-0")
    (spec,) = world.specs()
    assert "GPUPACK_DEVICES=GPU-2" in spec["devices"][0]["containerEdits"]["env"]


async def test_the_pod_is_the_one_with_exactly_these_device_tokens(world, build):
    world.bind("a", build.share(0), build.share(1), tokens=["gpu-0", "gpu-1"])
    world.bind("b", build.share(2), build.share(3), tokens=["gpu-1", "gpu-2"])
    record = await world.start("gpu-2", "gpu-1")
    assert record.name == "b"


async def test_a_pod_that_the_watch_shows_late_is_waited_for(world, build):
    world.wait(seconds=20.0)
    starting = asyncio.create_task(world.start("gpu-0"))
    await asyncio.sleep(0.1)
    world.bind("a", build.share(), tokens=["gpu-0"])
    assert (await starting).name == "a"


async def test_device_tokens_of_no_pod_are_refused_after_a_while(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    with pytest.raises(
        StartRefused, match=r"no known pod .* device tokens gpu-7 .*1 pods request 1"
    ):
        await world.start("gpu-7")


async def test_device_tokens_of_two_pods_start_neither(world, build):
    world.bind("a", build.share(0), tokens=["gpu-0"])
    world.bind("b", build.share(1), tokens=["gpu-0"])
    with pytest.raises(StartRefused, match="device tokens gpu-0 to 2 containers"):
        await world.start("gpu-0")
    assert world.specs() == []


async def test_a_container_restart_is_granted_again(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    assert await world.start("gpu-0") == await world.start("gpu-0")


def pair(world, name="a", **given):
    """A pod with two containers, which have one and two GPUs."""
    shares = [world.build.share(number) for number in (3, 0, 1)]
    tokens = {"x": ["gpu-0"], "y": ["gpu-1", "gpu-2"]}
    world.bind(name, *shares, tokens=tokens, **given)


async def test_two_containers_of_a_pod_start_at_once_each_with_its_own_devices(world):
    pair(world)
    await asyncio.gather(world.start("gpu-2", "gpu-1"), world.start("gpu-0"))
    reported = {spec["devices"][0]["containerEdits"]["env"][0] for spec in world.specs()}
    assert reported == {"GPUPACK_DEVICES=GPU-3", "GPUPACK_DEVICES=GPU-0,GPU-1"}
    records = {each.container: each.devices for each in world.node.specs.records}
    assert {name: len(devices) for name, devices in records.items()} == {"x": 1, "y": 2}


async def test_one_container_restarts_under_an_agent_that_was_restarted_too(world):
    pair(world)
    first, second = await world.start("gpu-0"), await world.start("gpu-1", "gpu-2")
    world.restart_agent()
    assert await world.start("gpu-1", "gpu-2") == second
    assert set(world.node.specs.records) == {first, second}


async def test_the_second_container_starts_under_an_agent_that_saw_neither_start(world):
    pair(world)
    await world.start("gpu-0")
    world.find_containers()
    world.wait(seconds=1.0)
    record = await world.start("gpu-1", "gpu-2")
    assert [share.uuid for share in record.devices] == ["GPU-0", "GPU-1"]


async def test_a_pod_is_queried_again_until_the_kubelet_lists_all_its_containers(world):
    world.wait(seconds=20.0)
    pair(world)
    listed = world.kubelet.tokens["a"]
    world.kubelet.tokens["a"] = {"x": ["gpu-0"]}
    starting = asyncio.create_task(world.start("gpu-1", "gpu-2"))
    await asyncio.sleep(0.1)
    world.kubelet.tokens["a"] = listed
    assert (await starting).container == "y"


async def test_device_tokens_of_two_containers_of_one_pod_start_neither(world, build):
    tokens = {"x": ["gpu-0"], "y": ["gpu-0"]}
    world.bind("a", build.share(0), build.share(1), tokens=tokens)
    with pytest.raises(StartRefused, match="device tokens gpu-0 to 2 containers"):
        await world.start("gpu-0")
    assert world.specs() == []


async def test_a_successor_gets_no_device_of_a_container_while_another_of_its_pod_lives(
    world, build
):
    """A pod that was deleted by force is one cgroup: which container lives in it is not known."""
    pair(world, "old")
    await world.start("gpu-0")
    await world.start("gpu-1", "gpu-2")
    world.force_delete("old")
    world.bind("new", build.share(1), tokens=["gpu-2"])
    with pytest.raises(StartRefused, match="GPU-1 is held by another pod"):
        await world.start("gpu-2")
    world.cgroups.remove("old")
    assert (await world.start("gpu-2")).name == "new"


async def test_the_second_of_two_pods_on_one_device_is_refused(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    world.bind("b", build.share(), tokens=["gpu-1"])
    await world.start("gpu-0")
    with pytest.raises(StartRefused, match="device GPU-0 is held by another pod"):
        await world.start("gpu-1")


async def test_of_two_starts_at_once_for_one_device_exactly_one_wins(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    world.bind("b", build.share(), tokens=["gpu-1"])
    outcomes = await asyncio.gather(
        world.start("gpu-0"), world.start("gpu-1"), return_exceptions=True
    )
    assert sum(isinstance(outcome, StartRefused) for outcome in outcomes) == 1
    assert len(world.specs()) == 1


async def test_many_pods_start_at_once_with_few_calls_to_the_kubelet(world, build):
    for index in range(4):
        world.bind(f"p{index}", build.share(index), tokens=[f"gpu-{index}"])
    await asyncio.gather(*(world.start(f"gpu-{index}") for index in range(4)))
    assert len(world.specs()) == 4
    assert world.kubelet.gets == 8


async def test_a_successor_waits_until_a_force_deleted_predecessors_processes_have_ended(
    world, build
):
    world.bind("old", build.share(), tokens=["gpu-0"])
    await world.start("gpu-0")
    world.force_delete("old")
    world.bind("new", build.share(), tokens=["gpu-1"])
    starting = asyncio.create_task(world.start("gpu-1"))
    await asyncio.sleep(0.1)
    assert not starting.done()
    world.cgroups.remove("old")
    assert (await starting).name == "new"


async def test_reused_device_tokens_keep_the_spec_of_their_last_holder(world, build):
    world.bind("old", build.share(0), tokens=["gpu-0"])
    await world.start("gpu-0")
    world.force_delete("old")
    world.bind("new", build.share(1), tokens=["gpu-0"])
    with pytest.raises(StartRefused, match="another pod or container, which has not ended"):
        await world.start("gpu-0")
    assert [record.name for record in world.node.specs.records] == ["old"]


async def test_a_lagging_watch_does_not_give_a_pods_devices_to_a_pod_of_the_same_name(world, build):
    world.bind("a", build.share(0), tokens=["gpu-0"], uid="uid-1")
    newer = build.pod_json("a", build.share(1), uid="uid-2")
    world.cluster.server.add_pod(newer)
    with pytest.raises(StartRefused, match="replaced the pod"):
        await world.start("gpu-0")
    assert world.specs() == []


async def test_a_call_for_a_dead_pod_of_the_same_name_does_not_get_the_new_pods_devices(
    world, build
):
    world.bind("a", build.share(), tokens=["gpu-0"])
    world.cgroups.remove("a")
    with pytest.raises(StartRefused, match="no cgroup"):
        await world.start("gpu-0")


async def test_a_restarted_agent_still_knows_the_holder(world, build):
    world.bind("old", build.share(), tokens=["gpu-0"])
    await world.start("gpu-0")
    world.force_delete("old")
    world.restart_agent()
    world.bind("new", build.share(), tokens=["gpu-1"])
    with pytest.raises(StartRefused, match="held by another pod"):
        await world.start("gpu-1")


async def test_shares_of_one_gpu_start_side_by_side(world):
    world.bind_share("a", "share-0", percent=60, memory_mib=500)
    world.bind_share("b", "share-1", percent=40, memory_mib=500)
    await world.start_share("share-0")
    await world.start_share("share-1")
    reported = [spec["devices"][0]["containerEdits"]["env"] for spec in world.specs()]
    assert all("GPUPACK_DEVICES=GPU-0" in variables for variables in reported)
    assert all("GPUPACK_DEVICE_ISOLATION=cooperative" in variables for variables in reported)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"percent": 41, "memory_mib": 1},
            "60% of device GPU-0 is held by other pods; 41% requested",
        ),
        ({"percent": 1, "memory_mib": 501}, "500 MiB of 1000 MiB of device GPU-0 are held"),
    ],
)
async def test_a_share_beyond_the_rest_of_its_gpu_waits_for_the_others(world, more, reason):
    world.bind_share("a", "share-0", percent=60, memory_mib=500)
    world.bind_share("b", "share-1", **more)
    await world.start_share("share-0")
    with pytest.raises(StartRefused, match=reason):
        await world.start_share("share-1")


async def test_a_whole_gpu_and_a_share_of_it_do_not_start_together(world, build):
    world.bind_share("share", "share-0", percent=1, memory_mib=1)
    world.bind("whole", build.share(), tokens=["gpu-0"])
    await world.start_share("share-0")
    with pytest.raises(StartRefused, match="held by another pod"):
        await world.start("gpu-0")
    world.node.specs.remove(world.node.specs.records[0])
    await world.start("gpu-0")
    with pytest.raises(StartRefused, match="held by another pod"):
        await world.start_share("share-0")


@pytest.mark.parametrize(
    ("held", "wanted"),
    [(60, 41), (100, 1), (1, 100)],
    ids=["too many shares", "a share of a held GPU", "a GPU with a held share"],
)
async def test_a_force_deleted_pod_holds_its_devices_until_its_processes_have_ended(
    world, held, wanted
):
    def start_of(name, percent):
        kind = names.GPU if percent == 100 else names.GPU_SHARE
        given = world.build.share(0, percent=percent, memory_mib=1)
        world.bind(name, given, tokens=[name], resource=kind)
        return lambda: world.prestart.prepare(kind, frozenset([name]), active=lambda: True)

    await start_of("old", held)()
    world.force_delete("old")
    start = start_of("new", wanted)
    with pytest.raises(StartRefused, match=r"held by (another pod|other pods)"):
        await start()
    world.cgroups.remove("old")
    assert (await start()).name == "new"


async def test_a_share_of_a_failed_gpu_does_not_start(world, build):
    failed = (build.device(0, simulated=True, health="Failed", cause="XID 79"),)
    world.node.known_devices.update(Findings(devices=failed))
    world.bind_share("a", "share-0", percent=10, memory_mib=10)
    with pytest.raises(StartRefused, match="GPU-0 failed: XID 79"):
        await world.start_share("share-0")


async def test_a_share_is_still_known_to_an_agent_that_was_restarted_and_restarts_itself(world):
    world.bind_share("a", "share-0", percent=60, memory_mib=500)
    first = await world.start_share("share-0")
    world.restart_agent()
    assert await world.start_share("share-0") == first
    world.bind_share("b", "share-1", percent=60, memory_mib=100)
    with pytest.raises(StartRefused, match="60% of device GPU-0 is held by other pods"):
        await world.start_share("share-1")


async def test_nothing_is_written_for_a_call_that_was_given_up(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    with pytest.raises(CallAbandoned):
        await world.start("gpu-0", active=lambda: False)
    assert world.specs() == []


async def test_without_the_api_server_a_start_is_refused_with_the_reason(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    world.cluster.server.down = True
    with pytest.raises(
        StartRefused,
        match=r"cannot check which pod has device tokens gpu-0: the API server answers 503",
    ):
        await world.start("gpu-0")


async def test_a_silent_api_server_does_not_delay_a_start_beyond_the_limit(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    world.cluster.server.silent = True
    with pytest.raises(StartRefused, match="does not answer"):
        await asyncio.wait_for(world.start("gpu-0"), 30)


async def test_without_the_kubelets_answer_a_start_is_refused_with_the_reason(world, build):
    world.bind("a", build.share(), tokens=["gpu-0"])
    await world.kubelet.stop()
    with pytest.raises(StartRefused, match="kubelet does not answer"):
        await world.start("gpu-0")


async def test_a_gpu_that_the_driver_has_just_lost_is_waited_for_and_named(world, build):
    class Lost:
        def injection(self, uuids):
            raise InventoryUnavailable(f"no device node of {uuids[0]}")

    world.bind("a", build.share(), tokens=["gpu-0"])
    world.prestart._inventory = Lost()
    with pytest.raises(StartRefused, match="no device node of GPU-0"):
        await world.start("gpu-0")


async def test_a_refusal_that_waiting_cannot_change_comes_at_once(world, build):
    world.bind("a", build.share(9), tokens=["gpu-0"])
    with pytest.raises(StartRefused) as caught:
        await world.start("gpu-0")
    assert "waited" not in str(caught.value)


async def test_no_refusal_names_a_pod(world, build):
    """The text becomes an event of whatever pod waits, perhaps in another namespace."""
    world.bind("pod-x", build.share(), tokens=["gpu-0"])
    await world.start("gpu-0")
    world.bind("pod-y", build.share(), tokens=["gpu-1"])
    world.bind("pod-z", build.share(1), tokens=["gpu-2"])
    world.bind("pod-w", build.share(1), tokens=["gpu-2"])
    for token in ("gpu-1", "gpu-2", "gpu-7"):
        with pytest.raises(StartRefused) as caught:
            await world.start(token)
        assert not any(name in str(caught.value) for name in ("pod-", "team"))
        assert caught.value.pods


def limited(world, name="a", slot="share-0"):
    share = msgspec.structs.replace(world.build.share(0, 40, 100), isolation="limited")
    world.bind(name, share, tokens=[slot], resource=names.GPU_SHARE)


def real(world, mps):
    """The GPUs are there, and their shares can be limited."""
    devices = tuple(world.build.device(index) for index in range(4))
    world.node.known_devices.update(Findings(devices=devices))
    world.mps = mps
    world.wait(seconds=0.3)


def serving(mps):
    """The daemon of the first GPU has its socket."""
    mps.pipe("GPU-0").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(mps.control("GPU-0")))


async def test_a_simulated_share_is_not_limited_and_is_marked_simulated(world):
    limited(world)
    await world.start_share("share-0")
    (spec,) = world.specs()
    env = spec["devices"][0]["containerEdits"]["env"]
    assert "GPUPACK_DEVICE_LIMITS=Simulated" in env
    assert not any(each.startswith("CUDA_MPS") for each in env)


async def test_a_limited_share_waits_for_the_daemon_of_its_gpu(world, folder):
    mps = MpsFolder(folder)
    real(world, mps)
    limited(world)
    with pytest.raises(StartRefused, match="its MPS supervisor does not run"):
        await world.start_share("share-0")
    mps.write_sign_of_life()
    with pytest.raises(StartRefused, match="the MPS daemon of the GPU is starting"):
        await world.start_share("share-0")
    assert mps.requested() == {"GPU-0"}
    (folder / "wanted" / "GPU-0").unlink()
    (folder / "wanted").rmdir()
    (folder / "wanted").write_text("not a folder")
    with pytest.raises(StartRefused, match="cannot request an MPS daemon"):
        await world.start_share("share-0")
    (folder / "wanted").unlink()
    serving(mps)
    await world.start_share("share-0")
    (spec,) = world.specs()
    edits = spec["devices"][0]["containerEdits"]
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40" in edits["env"]
    assert [each["containerPath"] for each in edits["mounts"]] == ["/run/gpupack/mps/control"]


async def test_a_limited_share_has_the_sound_threads_of_its_gpus_model(world, folder):
    mps = MpsFolder(folder)
    world.thread_percentages = ThreadPercentages({world.build.device(0).model: ((1, 13), (23, 27))})
    real(world, mps)
    world.wait(seconds=30)
    limited(world)
    mps.write_sign_of_life()
    serving(mps)
    await world.start_share("share-0")
    (spec,) = world.specs()
    env = spec["devices"][0]["containerEdits"]["env"]
    assert {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=27", "GPUPACK_DEVICE_PERCENT=40"} <= set(env)


async def test_shares_of_different_isolation_do_not_run_on_one_gpu(world):
    world.wait(seconds=0.2)
    limited(world, "a", "share-0")
    await world.start_share("share-0")
    world.bind_share("b", "share-1", percent=20, memory_mib=100)
    with pytest.raises(StartRefused, match="cannot run with this one"):
        await world.start_share("share-1")
