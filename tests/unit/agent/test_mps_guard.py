# SPDX-License-Identifier: Apache-2.0
"""Limited shares: pods that exceed or leave one, and pods that failed together."""

import asyncio
import dataclasses
import io
import signal
import sys
import time
import types

import pytest

from gpupack_agent.cgroups import pod_of
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.mps import guard as guards
from gpupack_agent.mps import process_reader
from gpupack_agent.mps.folder import Fault, MpsFolder
from gpupack_agent.mps.guard import Guard
from gpupack_agent.mps.process_reader import ProcessReader, serve
from gpupack_agent.mps.processes import DeviceProcess, read
from gpupack_agent.settings import LimitSettings
from gpupack_crds.devices import DeviceShare

MIB = 1 << 20


def share(memory_mib=1000, isolation="limited"):
    return DeviceShare(uuid="GPU-0", percent=50, memory_mib=memory_mib, isolation=isolation)


@dataclasses.dataclass
class Scene:
    """A node with limited shares; `used`: PID → pod, MiB, whether it is a client."""

    guard: Guard
    folder: MpsFolder
    events: list
    used: dict
    killed: list

    def notes(self, pod):
        return [(event.reason, event.note) for name, event in self.events if name == pod]

    def reasons(self, pod):
        return [reason for reason, _ in self.notes(pod)]


@pytest.fixture
def scene(build, folder, monkeypatch):
    def make(*records, **settings):
        used, events, killed = {}, [], []
        view = build.node(records=records, cgroups={})
        node = types.SimpleNamespace(observe=lambda: view)

        async def write_event(record, event):
            events.append((record.name, event))

        class Reader:
            async def read(self, uuids):
                assert uuids == {"GPU-0"}
                return tuple(
                    DeviceProcess("GPU-0", pid, mib * MIB, client)
                    for pid, (_, mib, client) in used.items()
                )

            async def stop(self):
                pass

        monkeypatch.setattr(guards.os, "kill", lambda *sent: killed.append(sent))
        monkeypatch.setattr(guards, "DRAIN_SECONDS", 0.01)
        mps = MpsFolder(folder)
        mps.pipe("GPU-0").mkdir(parents=True)
        guard = Guard(
            node,
            mps,
            Reader(),
            write_event,
            LimitSettings(**({"overrun_seconds": 0.05} | settings)),
            pod_of=lambda pid: f"uid-{used[pid][0]}" if pid in used else None,
        )
        return Scene(guard, mps, events, used, killed)

    return make


@pytest.fixture
def two(build):
    return (
        build.record("a", share(), tokens=["share-0"]),
        build.record("b", share(), tokens=["share-1"]),
    )


async def test_two_processes_that_each_keep_the_limit_exceed_it_together(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 900, True), 2: ("a", 900, True), 3: ("b", 1000, True)}
    await scenario.guard.round()
    assert scenario.reasons("a") == ["GpuShareExceeded"]
    assert "use 1800 MiB of GPU GPU-0; its share is 1000 MiB" in scenario.events[0][1].note
    assert scenario.reasons("b") == []
    assert scenario.killed == []


async def test_processes_of_a_pod_that_still_exceeds_its_share_are_stopped_then_killed(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 900, True), 2: ("a", 900, True), 3: ("b", 1000, True)}
    await scenario.guard.round()
    time.sleep(0.06)  # noqa: ASYNC251 - the monotonic clock is what it waits for
    await scenario.guard.round()
    stop, kill = signal.SIGSTOP, signal.SIGKILL
    assert scenario.killed == [(1, stop), (2, stop), (1, kill), (2, kill)]
    assert scenario.reasons("a") == ["GpuShareExceeded", "GpuShareTerminated"]


async def test_a_pod_that_frees_memory_in_time_continues(scene, two):
    scenario = scene(*two)
    scenario.used[1] = ("a", 1800, True)
    await scenario.guard.round()
    scenario.used[1] = ("a", 900, True)
    time.sleep(0.06)  # noqa: ASYNC251 - as above
    await scenario.guard.round()
    scenario.used[1] = ("a", 1800, True)
    await scenario.guard.round()
    assert scenario.killed == []


async def test_repeated_excess_gives_an_event_from_time_to_time(scene, two, monkeypatch):
    scenario = scene(*two)
    for mib in (1800, 900) * 5:
        scenario.used[1] = ("a", mib, True)
        await scenario.guard.round()
    assert scenario.reasons("a") == ["GpuShareExceeded"]
    monkeypatch.setattr(guards, "EVENT_INTERVAL_SECONDS", 0.0)
    scenario.used[1] = ("a", 1800, True)
    await scenario.guard.round()
    assert scenario.reasons("a") == ["GpuShareExceeded"] * 2


async def test_limits_hold_while_the_api_server_takes_no_events(scene, two, monkeypatch, caplog):
    monkeypatch.setattr(guards, "EVENT_SECONDS", 0.01)
    scenario = scene(*two)

    async def never(record, event):
        await asyncio.sleep(600)

    scenario.guard._write_event = never
    scenario.used[1] = ("a", 1800, True)
    async with asyncio.timeout(30):
        await scenario.guard.round()
        await asyncio.sleep(0.06)
        await scenario.guard.round()
    assert (1, signal.SIGKILL) in scenario.killed
    assert "no Event for pod team/a could be written: the pod's processes use 1800" in caplog.text


async def test_with_overrun_event_no_process_is_ended(scene, two):
    scenario = scene(*two, overrun="Event")
    scenario.used[1] = ("a", 1800, True)
    await scenario.guard.round()
    time.sleep(0.06)  # noqa: ASYNC251 - as above
    await scenario.guard.round()
    assert (scenario.reasons("a"), scenario.killed) == (["GpuShareExceeded"], [])


async def test_a_process_without_mps_has_left_its_limits(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 100, False), 2: ("b", 100, True)}
    await scenario.guard.round()
    assert scenario.reasons("b") == []
    ((reason, note),) = scenario.notes("a")
    assert reason == "GpuShareExceeded"
    assert "without MPS" in note


async def test_shares_without_limits_are_not_checked(scene, build):
    scenario = scene(build.record("a", share(isolation="cooperative")), build.record("b"))
    scenario.used[1] = ("a", 9000, False)
    await scenario.guard.round()
    assert scenario.events == []


async def test_a_driver_that_does_not_answer_ends_no_process(scene, two, caplog):
    scenario = scene(*two)

    async def refuse(_):
        raise InventoryUnavailable("no")

    scenario.guard._reader.read = refuse
    await scenario.guard.round()
    assert (scenario.events, scenario.killed) == ([], [])
    assert "cannot check limited shares" in caplog.text


async def test_clients_that_fail_together_get_an_event_without_a_culprit(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 10, True), 2: ("b", 10, True)}
    await scenario.guard.round()
    scenario.used.clear()
    scenario.folder.record("GPU-0", Fault(time.time() + 1, (1, 2)))
    for _ in range(2):
        await scenario.guard.round()
    ((_, to_a),) = scenario.notes("a")
    assert "with shares of the same GPU: pod b. A kernel of one of these pods caused it" in to_a
    assert scenario.reasons("b") == ["GpuSharePeerFault"]


async def test_clients_that_failed_together_and_ended_get_an_event_too(scene, two, build):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 10, True), 2: ("b", 10, True)}
    await scenario.guard.round()
    gone = build.node(records=(), cgroups={})
    scenario.guard._node.observe = lambda: gone
    scenario.folder.record("GPU-0", Fault(time.time() + 1, (1, 2)))
    for _ in range(2):
        await scenario.guard.round()
    assert scenario.reasons("a") == scenario.reasons("b") == ["GpuSharePeerFault"]


async def test_a_pod_that_ended_while_its_kernels_ran_is_named_in_both_events(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 10, True), 2: ("b", 10, True)}
    await scenario.guard.round()
    del scenario.used[1]
    scenario.folder.record("GPU-0", Fault(time.time() + 1, (2,), (1,)))
    await scenario.guard.round()
    ((_, to_a),), ((_, to_b),) = scenario.notes("a"), scenario.notes("b")
    assert to_a.startswith("a process of this pod ended while its kernels ran")
    assert "ended while its kernels ran (pod a)" in to_b


async def test_pods_of_other_namespaces_are_not_named(scene, two):
    mine, theirs = two[0], dataclasses.replace(two[1], namespace="other")
    scenario = scene(mine, theirs)
    scenario.used |= {1: ("a", 10, True), 2: ("b", 10, True)}
    await scenario.guard.round()
    scenario.folder.record("GPU-0", Fault(time.time() + 1, (1, 2)))
    await scenario.guard.round()
    ((_, note),) = scenario.notes("a")
    assert "a pod of another namespace" in note
    assert "pod b" not in note


async def test_a_new_agent_does_not_report_earlier_faults_again(scene, two):
    scenario = scene(*two)
    scenario.used |= {1: ("a", 10, True), 2: ("b", 10, True)}
    scenario.folder.record("GPU-0", Fault(time.time() - 60, (1, 2)))
    await scenario.guard.round()
    assert scenario.events == []


async def test_the_driver_is_queried_in_a_separate_process_and_not_while_one_hangs():
    answers = """
import sys
for line in sys.stdin:
    print('[{"uuid": "GPU-0", "pid": 7, "bytes": 5, "is_client": true}]', flush=True)
"""
    reader = ProcessReader((sys.executable, "-S", "-c", answers), timeout_seconds=30)
    for _ in range(2):
        assert await reader.read(["GPU-0"]) == (DeviceProcess("GPU-0", 7, 5, is_client=True),)
    await reader.stop()
    ends = ProcessReader((sys.executable, "-S", "-c", "input()"), timeout_seconds=30)
    with pytest.raises(InventoryUnavailable, match="DecodeError"):
        await ends.read(["GPU-0"])
    silent = ProcessReader(("sleep", "60"), timeout_seconds=0.1)
    with pytest.raises(InventoryUnavailable, match="TimeoutError"):
        await silent.read(["GPU-0"])


async def test_an_answer_of_thousands_of_processes_is_read():
    """A tenant can start them; the agent ends by an error that it does not expect."""
    process = '{"uuid": "GPU-0", "pid": 7, "bytes": 5, "is_client": true}'
    many = f"input(); print('[' + ', '.join(['{process}'] * 4000) + ']', flush=True)"
    reader = ProcessReader((sys.executable, "-S", "-c", many), timeout_seconds=30)
    assert len(await reader.read(["GPU-0"])) == 4000
    await reader.stop()


async def test_an_answer_without_an_end_is_none(monkeypatch):
    monkeypatch.setattr(process_reader, "LINE_BYTES", 100)
    endless = "input(); print('x' * 10_000, flush=True); input()"
    reader = ProcessReader((sys.executable, "-S", "-c", endless), timeout_seconds=30)
    with pytest.raises(InventoryUnavailable, match="ValueError"):
        await reader.read(["GPU-0"])


class NVMLError(Exception):
    pass


def test_an_nvml_error_is_the_reply():
    def refuse(_):
        raise NVMLError("GPU is lost")

    nvml = types.SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetHandleByUUID=refuse)
    output = io.BytesIO()
    serve(nvml, io.BytesIO(b'["GPU-0"]\n'), output)
    assert output.getvalue() == b'"GPU is lost"\n'


def test_the_driver_lists_the_clients_of_mps():
    def process(pid, used):
        return types.SimpleNamespace(pid=pid, usedGpuMemory=used)

    nvml = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [process(1, 5), process(2, None)],
        nvmlDeviceGetMPSComputeRunningProcesses=lambda _: [process(1, 5)],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [],
    )
    assert read(nvml, ["GPU-0"]) == (
        DeviceProcess("GPU-0", 1, 5, is_client=True),
        DeviceProcess("GPU-0", 2, 0, is_client=False),
    )


def test_graphics_processes_are_listed():
    def process(pid, used):
        return types.SimpleNamespace(pid=pid, usedGpuMemory=used)

    nvml = types.SimpleNamespace(
        NVMLError=Exception,
        NVMLError_NotSupported=KeyError,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [process(1, 5), process(2, 7)],
        nvmlDeviceGetMPSComputeRunningProcesses=lambda _: [process(1, 5)],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [process(2, 9), process(3, 4)],
    )
    found = read(nvml, ["GPU-0"])
    assert [(each.pid, each.bytes, each.is_client) for each in found] == [
        (1, 5, True),
        (2, 9, False),
        (3, 4, False),
    ]


def test_a_driver_that_is_too_old_is_named():
    class Mismatch(Exception):
        pass

    def lacks(_):
        raise Mismatch

    nvml = types.SimpleNamespace(
        NVMLError=NVMLError,
        NVMLLibraryMismatchError=Mismatch,
        nvmlDeviceGetHandleByUUID=lacks,
        nvmlSystemGetDriverVersion=lambda: "470.57.02",
    )
    output = io.BytesIO()
    serve(nvml, io.BytesIO(b'["GPU-0"]\n'), output)
    assert "470.57.02" in output.getvalue().decode()


def test_a_gpu_that_is_lost_leaves_no_other_unwatched():
    def handle(uuid):
        if uuid == "GPU-0":
            raise NVMLError("GPU is lost")
        return uuid

    process = types.SimpleNamespace(pid=1, usedGpuMemory=5)
    nvml = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [process],
        nvmlDeviceGetMPSComputeRunningProcesses=lambda _: [process],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [],
    )
    assert read(nvml, ["GPU-0", "GPU-1"]) == (DeviceProcess("GPU-1", 1, 5, is_client=True),)


@pytest.mark.parametrize("clients", [([1], []), ([], [1])])
def test_a_process_that_starts_or_ends_during_the_query_has_not_left_mps(clients):
    process, events = types.SimpleNamespace(pid=1, usedGpuMemory=5), iter(clients)
    nvml = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [process],
        nvmlDeviceGetMPSComputeRunningProcesses=lambda _: [process for _ in next(events)],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [],
    )
    assert read(nvml, ["GPU-0"]) == (DeviceProcess("GPU-0", 1, 5, is_client=True),)


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (
            "0::/kubepods/besteffort/pod0a1b2c3d-0000-1111-2222-333344445555/ab",
            "0a1b2c3d-0000-1111-2222-333344445555",
        ),
        (
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice/a.scope",
            "0a1b2c3d-0000-1111-2222-333344445555",
        ),
        ("0::/user.slice", None),
    ],
)
def test_the_cgroup_shows_the_pod_of_a_process(tmp_path, cgroup, uid):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(cgroup)
    assert pod_of(7, tmp_path) == uid
    assert pod_of(8, tmp_path) is None
