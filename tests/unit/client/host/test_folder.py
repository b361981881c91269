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
NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


def test_the_folder_is_open_to_all_and_nobody_removes_anothers_files(machine, folder):
    machine.allocate_gpu_resources(ONE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    (file,) = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@as_root
def test_users_share_the_gpus_and_see_who_holds_them(holder, machine):
    machine.get_gpu_status()
    theirs = holder(user=NOBODY, gpu_count=5)
    ours = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=3))
    assert not set(theirs.granted) & set(ours.device_uuids)
    refused = holder(user=NOBODY, gpu_count=1).refused
    assert f"of user {NOBODY}" in refused
    assert "of user 0" in refused


@as_root
def test_what_a_killed_process_of_another_user_leaves_is_nobodys(holder):
    holder(gpu_count=8).kill()
    assert len(holder(user=NOBODY, gpu_count=8).granted) == 8


@as_root
def test_a_folder_that_a_user_cannot_write_says_how_it_is_made(folder):
    folder.mkdir(mode=0o755)

    def attempt():
        os.setuid(NOBODY)
        try:
            host_gpus.manager(folder).get_gpu_status()
        except LedgerUnusable as error:
            return error

    said = in_child(attempt)
    assert f"user {NOBODY} cannot write in it; make it by `install -d -m 1777" in said


def test_a_symbolic_link_is_no_folder(folder, tmp_path):
    folder.symlink_to(tmp_path)
    with pytest.raises(LedgerUnusable, match="is no folder"):
        host_gpus.manager(folder).get_gpu_status()


def test_a_disk_that_is_full_gives_nothing_out_and_leaves_nothing_behind(machine, folder):
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


def test_what_is_given_back_needs_no_room_on_the_disk(machine):
    gpus = machine.allocate_gpu_resources(ONE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        gpus.release()
        assert machine.get_gpu_status().available_gpus == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("content", [b"", b'{"kind": "hol', b"\xff\xfe", b"[]", b'{"schema": 2}'])
def test_half_a_record_of_a_dead_process_is_swept_away_and_of_a_live_one_stops_all(
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


def test_what_a_process_leaves_that_is_killed_while_it_writes_is_swept_away(machine, folder):
    machine.get_gpu_status()
    (folder / ".new-holds-1-abc.json").write_bytes(b"{")
    machine.get_gpu_status()
    assert list(folder.glob("*.json")) == []


def written_again(machine, folder, **process):
    """What this process held, of one that differs in this and has no lock any more."""
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
    (file,) = folder.glob("*.json")
    record = msgspec.json.decode(file.read_bytes())
    gpus.release()
    record["process"] |= process
    file.write_bytes(msgspec.json.encode(record))


def test_a_pid_that_is_used_again_holds_nothing(machine, folder):
    written_again(machine, folder, start_ticks=1)
    assert machine.get_gpu_status().available_gpus == 8


def test_a_pid_of_another_namespace_is_not_looked_for_here(machine, folder):
    written_again(machine, folder, namespace="pid:[1]")
    assert machine.get_gpu_status().available_gpus == 8


def test_a_process_that_has_lost_its_lock_holds_its_gpus_until_it_is_gone(machine, folder):
    """As one does that is killed, or that closes all files as daemons do."""
    written_again(machine, folder)
    assert machine.get_gpu_status().available_gpus == 0


def test_a_folder_that_two_machines_share_is_noticed(machine, folder):
    machine.allocate_gpu_resources(ONE)
    (file,) = folder.glob("*.json")
    record = msgspec.json.decode(file.read_bytes())
    record["process"]["boot"] = "another"
    file.write_bytes(msgspec.json.encode(record))
    with pytest.raises(LedgerBroken, match="it is of another machine"):
        machine.get_gpu_status()


def test_fifos_and_other_files_in_the_folder_are_passed_over(machine, folder):
    machine.get_gpu_status()
    os.mkfifo(folder / "a.json")
    (folder / "mine.txt").write_text("nothing")
    assert machine.get_gpu_status().available_gpus == 8
    assert (folder / "mine.txt").exists()


def test_a_folder_that_is_replaced_while_its_lock_is_waited_for_is_not_used(folder):
    one = HostFolder(folder)
    with one.locked():
        folder.rename(folder.with_name("old"))
        with one.locked():
            assert one.records() == {}
            assert folder.exists()


def test_who_never_lets_go_of_the_ledger_is_named(folder, monkeypatch):
    monkeypatch.setattr(folders, "LOCK_SECONDS", 0.1)
    one = HostFolder(folder)
    with one.locked(), pytest.raises(folders.LedgerBusy, match="fuser -v"), one.locked():
        pass


def test_all_users_have_the_same_folder_by_default():
    """Whether /run/lock is open to all is asked, not whether this user may write there."""
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


def test_threads_that_make_the_folder_at_once_have_one(folder):
    """An empty one that somebody has locked already would be replaced by the next."""
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
def test_who_gave_up_being_root_can_still_let_go_of_its_gpus(folder):
    def attempt():
        manager = host_gpus.manager(folder)
        held = manager.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
        os.setuid(NOBODY)
        held.release()
        return list(HostFolder(folder).records())

    assert in_child(attempt) == "[]"


def test_a_folder_that_goes_while_it_is_locked_and_cannot_be_made_anew_is_told(folder, monkeypatch):
    ledger = HostFolder(folder)

    def replaced(_opened):
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
        folder.write_text("in its place")
        return False

    monkeypatch.setattr(ledger, "_lock", replaced)
    with pytest.raises(LedgerUnusable, match="it is no folder"), ledger.locked():
        pass
