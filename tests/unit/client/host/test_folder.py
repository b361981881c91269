# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import resource
import stat
import subprocess
import sys
import threading
import time

import host_gpus
import msgspec
import pytest
from host_gpus import in_child

from gpupack import LedgerBroken, LedgerUnusable, TrainingGPUConfig
from gpupack.host import folder as folders
from gpupack.host.folder import HostFolder, default_folder

ONE = TrainingGPUConfig()
OTHER_USER = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


def test_all_users_can_write_in_the_folder_and_remove_only_their_files(machine, folder):
    machine.allocate_gpu_resources(ONE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    (file,) = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@as_root
def test_users_share_the_gpus_and_see_the_holders(holder, machine):
    machine.get_gpu_status()
    theirs = holder(user=OTHER_USER, gpu_count=5)
    ours = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=3))
    assert not set(theirs.granted) & set(ours.device_uuids)
    refused = holder(user=OTHER_USER, gpu_count=1).refused
    assert f"of user {OTHER_USER}" in refused
    assert "of user 0" in refused


@as_root
def test_a_file_of_a_killed_process_of_another_user_holds_no_gpu(holder):
    holder(gpu_count=8).kill()
    assert len(holder(user=OTHER_USER, gpu_count=8).granted) == 8


@as_root
def test_an_unwritable_folder_is_reported_with_a_fix(folder):
    folder.mkdir(mode=0o755)

    def attempt():
        os.setuid(OTHER_USER)
        try:
            host_gpus.manager(folder).get_gpu_status()
        except LedgerUnusable as error:
            return error

    said = in_child(attempt)
    assert f"user {OTHER_USER} cannot write in it; create it by `install -d -m 1777" in said


def test_a_symbolic_link_is_refused_as_the_folder(folder, tmp_path):
    folder.symlink_to(tmp_path)
    with pytest.raises(LedgerUnusable, match="is not a folder"):
        host_gpus.manager(folder).get_gpu_status()


def test_a_full_disk_allocates_no_gpu_and_leaves_no_file(machine, folder):
    machine.get_gpu_status()

    def attempt():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        try:
            machine.allocate_gpu_resources(ONE)
        except LedgerUnusable as error:
            return error

    assert "cannot be written (File too large)" in in_child(attempt)
    assert list(folder.glob("*.json")) == []
    assert machine.get_gpu_status().available_gpus == 8


def test_a_release_works_on_a_full_disk(machine):
    gpus = machine.allocate_gpu_resources(ONE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        gpus.release()
        assert machine.get_gpu_status().available_gpus == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("content", [b"", b'{"kind": "hol', b"\xff\xfe", b"[]", b'{"schema": 2}'])
def test_a_broken_record_of_a_dead_process_is_removed_and_of_a_live_one_is_an_error(
    content, machine, folder
):
    machine.get_gpu_status()
    half = folder / "holds-1-abc.json"
    half.write_bytes(content)
    with half.open() as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with pytest.raises(LedgerBroken, match=r"holds-1-abc\.json: a live process has it locked"):
            machine.allocate_gpu_resources(ONE)
    machine.allocate_gpu_resources(ONE)
    assert not half.exists()


def test_a_file_of_a_process_killed_while_writing_is_removed(machine, folder):
    machine.get_gpu_status()
    (folder / ".new-holds-1-abc.json").write_bytes(b"{")
    machine.get_gpu_status()
    assert list(folder.glob("*.json")) == []


def written_again(machine, folder, **process):
    """Write this process's record with these changes, and without a lock."""
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
    (file,) = folder.glob("*.json")
    record = msgspec.json.decode(file.read_bytes())
    gpus.release()
    record["process"] |= process
    file.write_bytes(msgspec.json.encode(record))


def test_a_reused_pid_holds_no_gpu(machine, folder):
    written_again(machine, folder, start_ticks=1)
    assert machine.get_gpu_status().available_gpus == 8


def test_a_pid_of_another_namespace_is_not_searched_here(machine, folder):
    written_again(machine, folder, namespace="pid:[1]")
    assert machine.get_gpu_status().available_gpus == 8


def test_an_ending_process_without_its_lock_holds_its_gpus(machine, folder):
    """A killed process loses its lock early, and so does a daemon that closes all files."""
    written_again(machine, folder)
    assert machine.get_gpu_status().available_gpus == 0


def test_a_folder_of_two_machines_is_an_error(machine, folder):
    machine.allocate_gpu_resources(ONE)
    (file,) = folder.glob("*.json")
    record = msgspec.json.decode(file.read_bytes())
    record["process"]["boot"] = "another"
    file.write_bytes(msgspec.json.encode(record))
    with pytest.raises(LedgerBroken, match="it is of another machine"):
        machine.get_gpu_status()


def test_fifos_and_other_files_in_the_folder_are_ignored(machine, folder):
    machine.get_gpu_status()
    os.mkfifo(folder / "a.json")
    (folder / "mine.txt").write_text("nothing")
    assert machine.get_gpu_status().available_gpus == 8
    assert (folder / "mine.txt").exists()


def test_a_folder_replaced_during_locking_is_not_used(folder):
    one = HostFolder(folder)
    with one.locked():
        folder.rename(folder.with_name("old"))
        with one.locked():
            assert one.records() == {}
            assert folder.exists()


def test_a_process_that_keeps_the_ledger_locked_is_reported(folder, monkeypatch):
    monkeypatch.setattr(folders, "LOCK_SECONDS", 0.1)
    one = HostFolder(folder)
    with one.locked(), pytest.raises(folders.LedgerBusy, match="fuser -v"), one.locked():
        pass


def test_all_users_have_the_same_folder_by_default():
    """The mode of /run/lock decides, and not whether this user may write there."""
    code = (
        "import os, gpupack.host.folder as folder; os.setuid(65534); print(folder.default_folder())"
    )
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    environ = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    theirs = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        text=True,
        capture_output=True,
        check=True,
    )
    assert theirs.stdout.strip() == str(default_folder())


def test_concurrent_threads_create_one_folder(folder):
    """Another thread could replace an empty folder that is already locked."""
    entered = []

    def enter():
        with HostFolder(folder).locked():
            entered.append(folder.stat().st_ino)
            time.sleep(0.01)

    threads = [threading.Thread(target=enter) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(entered) == 16
    assert len(set(entered)) == 1


@as_root
def test_a_process_that_dropped_root_can_release_its_gpus(folder):
    def attempt():
        manager = host_gpus.manager(folder)
        held = manager.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
        os.setuid(OTHER_USER)
        held.release()
        return list(HostFolder(folder).records())

    assert in_child(attempt) == "[]"


def test_a_removed_folder_that_cannot_be_created_again_is_reported(folder, monkeypatch):
    ledger = HostFolder(folder)

    def replaced(_opened):
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
        folder.write_text("in its place")
        return False

    monkeypatch.setattr(ledger, "_lock", replaced)
    with pytest.raises(LedgerUnusable, match="it is not a folder"), ledger.locked():
        pass
