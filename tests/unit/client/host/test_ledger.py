# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import threading
import time

import host_gpus
import pytest
from host_gpus import in_child

from gpupack import NotEnoughGpus, NothingHeld, TrainingGPUConfig
from gpupack.backend import Patience

SHARE = {"compute_ratio": 0.3, "memory_gb": 20.0}


def free(machine):
    return machine.get_gpu_status().available_gpus


def eventually(look, seconds=30):
    until = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_processes_get_different_gpus_and_a_refusal_names_the_holders(holder):
    first, second = holder(gpu_count=4), holder(gpu_count=4)
    assert len({*first.granted, *second.granted}) == 8
    refused = holder(gpu_count=1)
    assert refused.held is None
    assert f"held by process {first.pid}" in refused.refused
    assert "fewer than 1 free GPU" in refused.refused


@pytest.mark.parametrize("how", ["kill", "end"])
def test_gpus_are_released_however_the_process_ends(how, holder, machine):
    gone = holder(gpu_count=8)
    assert free(machine) == 0
    getattr(gone, how)()
    assert free(machine) == 8
    assert len(holder(gpu_count=8).granted) == 8


def test_released_gpus_are_free_at_once(machine, holder):
    with machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8)) as gpus:
        assert gpus.held
        assert holder(gpu_count=1).held is None
    assert not gpus.held
    assert holder(gpu_count=8).granted


def test_shares_are_packed_on_one_gpu_up_to_its_time_and_memory(holder):
    first, second, third = (holder(**SHARE) for _ in range(3))
    assert first.granted == second.granted == third.granted
    assert holder(**SHARE).granted != first.granted, "a fourth of 30 % does not fit next to three"
    assert holder(compute_ratio=0.01, memory_gb=25.0).granted != first.granted, "80 GB, 60 are held"


def test_shares_and_whole_gpus_use_different_gpus(holder, machine):
    share = holder(**SHARE)
    whole = holder(gpu_count=7)
    assert not set(share.granted) & set(whole.granted)
    assert free(machine) == 0
    assert holder(gpu_count=1).held is None


def test_a_waiting_process_gets_the_gpus_of_a_killed_one(holder):
    holds = holder(gpu_count=8)
    waits = holder(gpu_count=2, timeout_seconds=30, wait=False)
    holds.kill()
    assert len(waits.wait().granted) == 2


def test_waiting_processes_are_served_in_order(holder, machine):
    holds = holder(gpu_count=6)
    large = holder(gpu_count=8, timeout_seconds=30, wait=False)
    eventually(lambda: "waits" in said_to_one_more(machine))
    small = holder(gpu_count=1)
    assert "waits ahead: 8 GPUs" in small.refused
    holds.end()
    assert len(large.wait().granted) == 8


def test_a_killed_waiting_process_does_not_block_others(holder, machine):
    holder(gpu_count=6)
    large = holder(gpu_count=8, timeout_seconds=30, wait=False)
    eventually(lambda: "waits" in said_to_one_more(machine))
    large.kill()
    assert holder(gpu_count=2).granted


def said_to_one_more(machine):
    try:
        machine.allocate_gpu_resources(TrainingGPUConfig(), timeout_seconds=0).release()
    except NotEnoughGpus as error:
        return str(error)
    return ""


def test_no_file_remains_after_a_timeout(holder, machine, folder):
    holds = holder(gpu_count=8)
    begun = time.monotonic()
    with pytest.raises(NotEnoughGpus) as raised:
        machine.allocate_gpu_resources(TrainingGPUConfig(), timeout_seconds=0.3)
    assert 0.3 <= time.monotonic() - begun < 30
    assert not raised.value.never
    assert [each.name.split("-")[1] for each in folder.glob("*.json")] == [str(holds.pid)]


def test_a_request_that_can_never_fit_is_refused_at_once(machine):
    with pytest.raises(NotEnoughGpus, match="fewer than 9 GPUs") as raised:
        machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=9), timeout_seconds=60)
    assert raised.value.never
    with pytest.raises(NotEnoughGpus, match="model is not A100"):
        machine.allocate_gpu_resources(TrainingGPUConfig(gpu_type="A100"), timeout_seconds=60)


def test_another_thread_can_end_a_wait(holder, machine):
    holder(gpu_count=8)
    patience = Patience(60, 3600)
    threading.Timer(0.2, patience.stop.set).start()
    with pytest.raises(NotEnoughGpus):
        machine.allocate(TrainingGPUConfig(), patience)


def test_threads_of_one_process_get_different_gpus(machine):
    held = []

    def hold():
        held.append(machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=2)))

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({uuid for each in held for uuid in each.device_uuids}) == 8


def test_a_forked_child_neither_holds_nor_releases_its_parents_gpus(machine, holder):
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
    assert in_child(lambda: gpus.held) == "False"
    in_child(machine.close)
    assert holder(gpu_count=1).held is None


def test_a_child_holds_its_parents_gpus_only_with_the_file(folder, holder, machine):
    for given in (True, False):
        child = start_parent_with_child(folder, given=given)
        assert free(machine) == (0 if given else 8)
        os.kill(child, 9)
        eventually(lambda: free(machine) == 8)


def start_parent_with_child(folder, *, given):
    """Start a process that holds all GPUs, starts a child and is killed; return the child's PID."""
    code = f"""
import os, subprocess, sys, warnings
warnings.simplefilter("ignore")
import host_gpus
from gpupack import TrainingGPUConfig
gpus = host_gpus.manager({str(folder)!r}).allocate_gpu_resources(TrainingGPUConfig(gpu_count=8))
fds = gpus.pass_fds if {given} else ()
silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child = subprocess.Popen(["sleep", "60"], pass_fds=fds, **silent)
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, text=True, capture_output=True, check=False
    )
    return int(done.stdout)


def test_an_allocation_of_another_process_cannot_be_released(machine, folder):
    gpus = machine.allocate_gpu_resources(TrainingGPUConfig())
    with host_gpus.manager(folder) as other:
        with pytest.raises(NothingHeld):
            other.backend.release(gpus.allocation_id)
        with pytest.raises(NothingHeld, match="this manager holds no such allocation"):
            other.cleanup_gpu_resources(gpus)
    assert gpus.held


def test_a_jump_of_the_clock_has_no_effect(machine, holder, monkeypatch):
    holder(gpu_count=8)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with pytest.raises(NotEnoughGpus):
        machine.allocate_gpu_resources(TrainingGPUConfig(), timeout_seconds=0.2)
