# SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import threading
import time

import host_gpus
import pytest
from host_gpus import in_child

from gpupack import LedgerUnusable, NotEnoughGpus, TrainingGPUConfig
from gpupack.backend import Patience
from gpupack.config import GpuConfig, ThisMachineConfig
from gpupack.errors import NothingHeld
from gpupack.host import record as records
from gpupack.host.folder import HostFolder
from gpupack.host.opening import gpus_of, open_host
from gpupack.host.reservations import Reservations, reservations

NOW = Patience(0, 600)
OTHER_USER = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


@pytest.fixture
def host(folder):
    config = GpuConfig(this_machine=ThisMachineConfig(folder=str(folder), simulated_gpus="8xH100"))
    return open_host(config, gpus_of(config))


@pytest.fixture
def reserved(host):
    """Return the reservations of the folder."""
    return Reservations(host.folder, host.ledger)


def gpus(count):
    return TrainingGPUConfig(gpu_count=count)


def uuids(record):
    return {each.uuid for each in record.devices}


def test_a_reservation_outlives_its_process(reserved, machine):
    assert in_child(lambda: len(reserved.make("a", gpus(5), NOW).devices)) == "5"
    ours = machine.allocate_gpu_resources(gpus(3))
    assert not uuids(reserved.find("a")) & set(ours.device_uuids)
    with pytest.raises(NotEnoughGpus, match="a reservation for"):
        machine.allocate_gpu_resources(gpus(1), timeout_seconds=0)


def test_a_reservation_holds_its_gpus_once(reserved, machine):
    reserved.make("a", gpus(2), NOW)
    assert machine.get_gpu_status().available_gpus == 6


def test_any_process_of_the_user_can_cancel_a_reservation(reserved, machine):
    reserved.make("a", gpus(8), NOW)
    in_child(lambda: reserved.cancel("a"))
    assert reserved.find("a") is None
    assert machine.get_gpu_status().available_gpus == 8
    with pytest.raises(NothingHeld, match="no reservation a"):
        reserved.cancel("a")


def test_a_reservation_and_its_file_end_with_its_time(reserved, machine, folder, monkeypatch):
    reserved.make("a", gpus(8), NOW)
    later = records.uptime_seconds() + 601
    monkeypatch.setattr(records, "uptime_seconds", lambda: later)
    assert machine.get_gpu_status().available_gpus == 8
    assert not list(folder.glob("*.json"))


def test_a_reservation_ends_with_a_reboot(reserved, machine, monkeypatch):
    reserved.make("a", gpus(8), NOW)
    monkeypatch.setattr(records, "boot_id", lambda: "another")
    assert machine.get_gpu_status().available_gpus == 8


def test_one_name_is_one_reservation(reserved):
    first = reserved.make("a", gpus(2), NOW)
    assert reserved.make("a", gpus(3), NOW) == first


def test_concurrent_calls_with_one_name_create_one_reservation(reserved, machine):
    made, start = [], threading.Barrier(4)

    def make():
        start.wait()
        made.append(reserved.make("a", gpus(1), Patience(5, 600)))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({tuple(each.devices) for each in made}) == 1
    assert machine.get_gpu_status().available_gpus == 7


def test_a_reservation_without_free_gpus_holds_none(reserved, machine, folder):
    ours = machine.allocate_gpu_resources(gpus(7))
    with pytest.raises(NotEnoughGpus, match="held by process"):
        reserved.make("a", gpus(2), NOW)
    ours.release()
    assert not list(folder.glob("*.json"))


def test_a_server_killed_before_the_reservation_leaves_the_gpus_free(
    reserved, machine, monkeypatch
):
    monkeypatch.setattr(HostFolder, "reserve", lambda *_: os._exit(9))
    in_child(lambda: reserved.make("a", gpus(8), NOW))
    assert machine.get_gpu_status().available_gpus == 8


def test_a_server_killed_after_the_reservation_counts_the_gpus_once(reserved, machine, monkeypatch):
    made = HostFolder.reserve
    monkeypatch.setattr(HostFolder, "reserve", lambda *given: (made(*given), os._exit(9)))
    in_child(lambda: reserved.make("a", gpus(5), NOW))
    monkeypatch.undo()
    assert machine.get_gpu_status().available_gpus == 3
    assert len(reserved.find("a").devices) == 5


def test_reservations_are_distinguished_from_processes(host, reserved, machine):
    machine.allocate_gpu_resources(gpus(1))
    reserved.make("a", gpus(1), NOW)
    with host.folder.locked():
        assert set(reservations(host.folder.records())) == {"a"}


def as_another_user(do):
    """Return the answer or the refusal of a process of another user."""

    def other():
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        try:
            return do()
        except LedgerUnusable as error:
            return str(error)

    return in_child(other)


@as_root
def test_another_user_cannot_use_or_cancel_a_reservation(reserved, folder):
    reserved.make("a", gpus(5), NOW)
    assert "is another user's" in as_another_user(lambda: reserved.cancel("a"))
    assert host_gpus.Holder(folder, gpu_count=4).refused


@as_root
def test_a_guessed_name_gives_no_access_to_gpus(reserved):
    reserved.make("b", gpus(1), NOW)
    assert as_another_user(lambda: len(reserved.make("a", gpus(5), NOW).devices)) == "5"
    with pytest.raises(LedgerUnusable, match="use another name"):
        reserved.make("a", gpus(1), NOW)


def test_a_reused_name_holds_other_gpus(reserved, machine):
    """Another process read the first reservation, and nothing between the two."""
    first = uuids(reserved.make("a", gpus(1), NOW))
    assert machine.get_gpu_status().available_gpus == 7
    reserved.cancel("a")
    reserved.make("b", gpus(1), NOW)
    second = uuids(reserved.make("a", gpus(1), NOW))
    assert second != first
    ours = machine.allocate_gpu_resources(gpus(6)).device_uuids
    assert not set(ours) & (second | uuids(reserved.find("b")))


@pytest.mark.parametrize(
    "change", [{"devices": []}, {"reserved_until": 1e300}, {"devices": [["GPU-a", -5, 1]]}]
)
def test_a_file_of_another_program_reserves_no_gpu(reserved, folder, machine, change):
    reserved.make("a", gpus(5), NOW)
    (file,) = folder.glob("reserved-a.json")
    text = json.loads(file.read_text())
    if change.get("devices"):
        change = {"devices": [text["devices"][0] | {"milli": -5}]}
    file.write_text(json.dumps(text | change))
    assert machine.get_gpu_status().available_gpus == 8


def test_a_lock_does_not_extend_a_reservation(reserved, folder, machine):
    reserved.make("a", gpus(8), Patience(0, 3))
    with (folder / "reserved-a.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert machine.get_gpu_status().available_gpus == 0
        time.sleep(3.1)
        assert machine.get_gpu_status().available_gpus == 8
