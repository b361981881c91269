# SPDX-License-Identifier: Apache-2.0
"""The command as a worker's container runs it, alone and as two workers of one host."""

import signal
import time
from pathlib import Path

import pytest

WAITING_SECONDS = 120


def wait_for(condition, what):
    end = time.monotonic() + WAITING_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {WAITING_SECONDS} s: {what}"
        time.sleep(0.1)
    return found


def child_of(worker):
    """The process with TensorFlow: multiprocessing has another one, which tracks resources."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == worker.process.pid and b"spawn_main" in command:
            return int(path.name)
    return None


def test_a_worker_trains_a_replica_for_each_of_its_gpus_and_keeps_to_its_share(start):
    result = start(
        GPUPACK_DEVICES="GPU-sim-a,GPU-sim-b",
        GPUPACK_DEVICE_ISOLATION="cooperative",
        GPUPACK_DEVICE_MEMORY_MIB="10240",
    ).result()
    found = result["metrics"]
    assert (result["workload"], result["verified"], result["simulated"]) == (
        "tensorflow",
        True,
        True,
    )
    assert (found["strategy"], found["replicas"]) == ("MirroredStrategy", 2)
    assert (found["memory_limit_mib"], found["memory_growth"]) == (8192, True)
    assert found["gradient_error"] <= found["gradient_error_bound"]


def test_two_workers_are_one_training(start, gang):
    workers = [start("--shape=cifar10", "--epochs=2", TF_CONFIG=config) for config in gang]
    results = [worker.result() for worker in workers]
    assert [each["verified"] for each in results] == [True, True]
    one, other = (each["metrics"] for each in results)
    assert (one["strategy"], one["workers"], one["replicas"]) == (
        "MultiWorkerMirroredStrategy",
        2,
        2,
    )
    assert (one["worker"], other["worker"]) == (0, 1)
    assert (one["loss"], one["accuracy"]) == (other["loss"], other["accuracy"])


def test_what_learns_nothing_is_not_verified(start):
    worker = start("--images=8", "--batch-size=8", "--epochs=1")
    assert worker.status() == 3, worker.log
    assert "of the test images are right, fewer than 0.7" in worker.log
    assert '"verified":false' in worker.message.read_text()


def test_a_gpu_that_is_required_and_missing_ends_with_status_5(start):
    assert start("--require-gpu").status() == 5


def test_a_worker_that_waits_for_another_ends_by_a_signal(start, gang):
    worker = start(TF_CONFIG=gang[0])
    wait_for(lambda: "no GPU" in worker.log, "TensorFlow waits for the other")
    began = time.monotonic()
    child = child_of(worker)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.status() == 143
    assert time.monotonic() - began < 20
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_is_lost_ends_the_other_with_status_6(start, gang, lost):
    workers = [start("--epochs=10000", TF_CONFIG=config) for config in gang]
    wait_for(lambda: all("epoch 0" in each.log for each in workers), "both have begun")
    workers[lost].process.kill()
    other = workers[1 - lost]
    assert other.status() == 6, other.log
    # No process computes for one that was killed.
    assert workers[lost].status() == -signal.SIGKILL
