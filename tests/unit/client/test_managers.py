# SPDX-License-Identifier: Apache-2.0
import asyncio
import datetime as dt
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import host_gpus
import pytest

from gpupack import (
    AsyncGPUResourceManager,
    ClusterStatus,
    ConfigInvalid,
    GpupackError,
    LedgerUnusable,
    NotEnoughGpus,
    NothingHeld,
    SimulatedGpuWarning,
    TrainingGPUConfig,
    Unsupported,
    get_gpu_resource_manager,
    open_manager,
)
from gpupack.manager import has_changed
from gpupack.views import Utilization

ALL = TrainingGPUConfig(gpu_count=8)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def machine(folder):
    with host_gpus.manager(folder, monitor_update_interval=0.01) as manager:
        yield manager


def status(gpus, memory=0.0, total=8):
    return ClusterStatus(Utilization(gpus, memory), (), 1, total, 0, dt.datetime.now(dt.UTC))


def test_closing_a_manager_releases_its_gpus(folder):
    with host_gpus.manager(folder) as machine:
        gpus = machine.allocate_gpu_resources(ALL)
    assert not gpus.held
    with host_gpus.manager(folder) as machine:
        assert machine.get_gpu_status().available_gpus == 8


def test_one_or_all_allocations_can_be_released(machine):
    first, second, third = (machine.allocate_gpu_resources(TrainingGPUConfig()) for _ in range(3))
    machine.cleanup_gpu_resources(first)
    machine.cleanup_gpu_resources(second.allocation_id)
    assert (first.held, second.held, third.held) == (False, False, True)
    machine.cleanup_gpu_resources()
    assert not third.held


def test_this_machine_refuses_to_run_a_workload(machine):
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig())
    with pytest.raises(Unsupported, match=r"start torchrun yourself, with allocation.environment"):
        machine.run_on(gpus, ["torchrun", "train.py"], image="train:1")
    with pytest.raises(NothingHeld):
        machine.run_on("another", ["torchrun"], image="train:1")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_workload_needs_an_allocation(machine, number):
    for _ in range(number):
        machine.allocate_gpu_resources(TrainingGPUConfig())
    with pytest.raises(ConfigInvalid, match="allocation: None; give an allocation of this manager"):
        machine.run_on(None, ["torchrun"], image="train:1")


def test_available_nodes_have_a_free_gpu_of_the_model_and_memory(machine):
    (node,) = machine.get_available_gpu_nodes("H100", 80)
    assert (node.available_gpus, node.gpu_type, node.simulated) == (8, "H100", True)
    assert machine.get_available_gpu_nodes("A100") == []
    assert machine.get_available_gpu_nodes(None, 81) == []
    assert {(gpu.given_percent, gpu.simulated) for gpu in node.devices} == {(0.0, True)}
    machine.allocate_gpu_resources(ALL)
    assert machine.get_available_gpu_nodes("H100") == []
    (node,) = machine.backend.nodes()
    assert {gpu.given_percent for gpu in node.devices} == {100.0}


def test_a_validation_is_true_where_the_request_fits_later(machine):
    machine.allocate_gpu_resources(ALL)
    found = machine.validate_gpu_requirements(ALL)
    assert found
    assert not found.fits_now
    assert not machine.validate_gpu_requirements(TrainingGPUConfig(gpu_type="A100"))


def test_monitoring_data_has_the_form_of_the_rest_api(machine):
    machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=2))
    data = machine.get_gpu_monitoring_data()
    assert data["utilization"] == {"gpu_utilization": 25.0, "gpu_memory_usage": 25.0}
    assert data["total_nodes"] == 1
    assert data["available_nodes"][0]["available_gpus"] == 6


def test_watch_yields_changes(machine):
    seen = machine.watch()
    assert next(seen).available_gpus == 8
    machine.allocate_gpu_resources(ALL)
    assert next(seen).available_gpus == 0


def test_watch_omits_changes_below_the_threshold():
    assert not has_changed(status(10), status(14), 0.05)
    assert has_changed(status(10), status(15), 0.05)
    assert has_changed(status(10), status(10, memory=5.0), 0.05)
    assert has_changed(status(10), status(10, total=9), 1.0)
    assert not has_changed(status(10), status(10), 0.0)


def test_the_process_shares_one_manager_until_it_is_closed(monkeypatch, folder):
    monkeypatch.setenv("GPUPACK_SIMULATED_GPUS", "8xH100")
    monkeypatch.setenv("GPUPACK_HOST_FOLDER", str(folder))
    with pytest.warns(SimulatedGpuWarning, match="8xH100"):
        first = get_gpu_resource_manager()
    assert get_gpu_resource_manager() is first
    first.close()
    with pytest.warns(SimulatedGpuWarning):
        second = get_gpu_resource_manager()
    assert second is not first
    second.close()


def test_a_machine_without_gpus_is_reported_with_a_hint(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_manager(environ={"GPUPACK_HOST_FOLDER": str(folder)}) as machine:
        if machine.get_gpu_status().total_gpus:
            pytest.skip("this machine has GPUs")
        assert machine.initialized
        with pytest.raises(NotEnoughGpus, match=r"no NVIDIA driver here.*GPUPACK_SIMULATED_GPUS"):
            machine.allocate_gpu_resources(TrainingGPUConfig())


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "H100",
        "0xH100",
        "129xH100",
        "8x",
        "8xH100,2xA100",
        "8xH100 + 2xA100",
        "8xH100 2xA100",
        "8xH100/2 x A100",
    ],
)
def test_simulated_gpus_are_a_number_and_a_model(text, folder):
    environ = {"GPUPACK_SIMULATED_GPUS": text}
    with pytest.raises(ConfigInvalid, match="write a number from 1 to 128, x and one model"):
        open_manager(environ=environ)


async def test_the_asynchronous_manager_does_the_same(folder):
    async with AsyncGPUResourceManager(host_gpus.manager(folder)) as machine:
        assert await machine.validate_gpu_requirements(ALL)
        async with await machine.allocate_gpu_resources(ALL) as gpus:
            assert len(gpus.device_uuids) == 8
            assert (await machine.get_gpu_status()).available_gpus == 0
        assert len(await machine.get_available_gpu_nodes("H100")) == 1
        held = await machine.allocate_gpu_resources(ALL)
        await machine.cleanup_gpu_resources(held)
        assert (await machine.get_gpu_monitoring_data())["available_gpus"] == 8


def test_a_failed_release_does_not_stop_other_releases(machine, monkeypatch):
    first, second = (machine.allocate_gpu_resources(TrainingGPUConfig()) for _ in range(2))
    release = machine.backend.release

    def refused(name):
        if name == first.allocation_id:
            raise LedgerUnusable("not now")
        release(name)

    monkeypatch.setattr(machine.backend, "release", refused)
    with pytest.raises(LedgerUnusable, match="not now"):
        machine.cleanup_gpu_resources()
    assert (first.held, second.held) == (True, False)
    monkeypatch.undo()
    machine.cleanup_gpu_resources()
    assert not first.held


@pytest.mark.parametrize("seconds", [-1, float("nan"), "2"])
def test_an_invalid_timeout_is_refused(machine, seconds):
    with pytest.raises(ConfigInvalid, match=r"^timeout_seconds: .*; give a number of seconds"):
        machine.allocate_gpu_resources(ALL, timeout_seconds=seconds)


def test_closing_a_manager_ends_its_waits(folder):
    with host_gpus.manager(folder) as other:
        other.allocate_gpu_resources(ALL)
        closing = host_gpus.manager(folder)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(closing.allocate_gpu_resources, ALL, timeout_seconds=300)
            while len(list(folder.glob("*.json"))) < 2:
                time.sleep(0.01)
            closing.close()
            with pytest.raises(GpupackError, match="closed during the call") as caught:
                waiting.result(30)
        assert not isinstance(caught.value, NotEnoughGpus), "a program would try again"
        other.cleanup_gpu_resources()
        assert other.get_gpu_status().available_gpus == 8


def test_a_manager_closed_by_its_waiting_thread_ends_the_wait(folder):
    with host_gpus.manager(folder) as other:
        other.allocate_gpu_resources(ALL)
        closing = host_gpus.manager(folder)
        before = signal.signal(signal.SIGALRM, lambda *_: closing.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(GpupackError, match="closed during the call"):
                closing.allocate_gpu_resources(ALL, timeout_seconds=300)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_a_closed_manager_does_not_wait_for_gpus(folder):
    with host_gpus.manager(folder) as other:
        other.allocate_gpu_resources(ALL)
        closed = host_gpus.manager(folder)
        closed.close()
        with pytest.raises(GpupackError, match="this manager is closed; open another one"):
            closed.allocate_gpu_resources(ALL, timeout_seconds=300)


@pytest.mark.parametrize("config", [None, 2, {"gpu_count": 2}])
def test_a_request_of_another_type_is_refused(machine, config):
    for call in (machine.allocate_gpu_resources, machine.validate_gpu_requirements):
        with pytest.raises(ConfigInvalid, match=r"^config: .*; give a TrainingGPUConfig"):
            call(config)


@pytest.mark.parametrize("memory", ["16", -1, float("nan"), None])
def test_an_invalid_minimum_of_memory_is_refused(machine, memory):
    with pytest.raises(ConfigInvalid, match=r"^min_memory_gb: .*; give a number of GB, 0 or more"):
        machine.get_available_gpu_nodes(min_memory_gb=memory)


def test_a_model_that_is_no_text_is_refused(machine):
    with pytest.raises(ConfigInvalid, match="gpu_type: 100; give a model such as V100"):
        machine.get_available_gpu_nodes(100)


@pytest.mark.parametrize("command", ["torchrun train.py", b"torchrun", []])
def test_a_command_that_is_no_list_of_words_is_refused(machine, command):
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig())
    with pytest.raises(ConfigInvalid, match=r"^command: .*; give a list of words, such as"):
        machine.run_on(gpus, command, image="train:1")


async def test_waiting_calls_do_not_block_releases(folder):
    async with AsyncGPUResourceManager(host_gpus.manager(folder)) as machine:
        first = await machine.allocate_gpu_resources(ALL)
        asking = (machine.allocate_gpu_resources(ALL, timeout_seconds=60) for _ in range(40))
        waiting = [asyncio.create_task(each) for each in asking]
        await asyncio.sleep(0.5)
        await asyncio.wait_for(first.release(), 30)
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        assert len(done) == 1
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def test_a_cancelled_wait_holds_no_gpu(folder):
    async with AsyncGPUResourceManager(host_gpus.manager(folder)) as machine:
        first = await machine.allocate_gpu_resources(ALL)
        waiting = asyncio.create_task(machine.allocate_gpu_resources(ALL, timeout_seconds=60))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await first.release()
        assert (await machine.get_gpu_status()).available_gpus == 8


async def test_a_wait_does_not_block_the_event_loop(folder):
    async with AsyncGPUResourceManager(host_gpus.manager(folder)) as machine:
        first = await machine.allocate_gpu_resources(ALL)
        waiting = asyncio.create_task(machine.allocate_gpu_resources(ALL, timeout_seconds=60))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await first.release()
        second = await asyncio.wait_for(waiting, 30)
        assert second.gpus.held
