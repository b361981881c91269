# SPDX-License-Identifier: Apache-2.0
"""The allreduce workload: gangs of several workers as processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.rank import choose_backend
from gpupack_workloads.errors import NoSuchDevice

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this gang is of CPUs")
SIGNALS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
GANG_SECONDS, GRACE_SECONDS = 90, 20


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def start(
    *arguments: str,
    port: int,
    index: int = 0,
    workers: int = 1,
    processes: int = 1,
    host: str = "127.0.0.1",
) -> subprocess.Popen[str]:
    environ = os.environ | {
        "GPUPACK_WORKERS": str(workers),
        "GPUPACK_WORKER_INDEX": str(index),
        "GPUPACK_RENDEZVOUS": f"{host}:{port}",
        "GPUPACK_PROCESSES_PER_WORKER": str(processes),
        "GPUPACK_RESULT_PATH": os.devnull,
    }
    command = [sys.executable, "-m", "gpupack_workloads", "allreduce", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True)


@no_gpu
@pytest.mark.parametrize(("backend", "status"), [("gloo", 0), ("nccl", 5)])
def test_a_gang_leaves_no_temporary_files(monkeypatch, tmp_path, port, backend, status):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("GPUPACK_BACKEND", backend)
    ended = start("--size", "64", port=port)
    ended.communicate(timeout=GANG_SECONDS)
    assert (ended.returncode, list(tmp_path.iterdir())) == (status, [])


@no_gpu
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_two_workers_sum_exactly_and_agree_on_the_time(port, host):
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this host has no IPv6")
    asked = ("--json", "--size", "4096")
    gang = [start(*asked, port=port, index=i, workers=2, host=host) for i in range(2)]
    results = [json.loads(worker.communicate(timeout=120)[0]) for worker in gang]
    assert [worker.returncode for worker in gang] == [0, 0]
    assert [result["metrics"]["ranks"] for result in results] == [2, 2]
    assert results[0]["metrics"]["bus_gb_per_s"] == results[1]["metrics"]["bus_gb_per_s"] > 0
    found = [result["communication"] for result in results]
    assert [each["transport"] for each in found] == ["tcp", "tcp"]
    assert found[0]["bus_gb_per_s"] == found[1]["bus_gb_per_s"] > 0


@no_gpu
def test_one_worker_can_run_two_processes(port):
    worker = start("--size", "64", port=port, processes=2)
    output, _ = worker.communicate(timeout=120)
    assert (worker.returncode, "2 ranks" in output) == (0, True)


@no_gpu
def test_nccl_without_gpus_ends_with_the_status_of_no_such_device(monkeypatch, port):
    monkeypatch.setenv("GPUPACK_BACKEND", "nccl")
    worker = start(port=port)
    _, errors = worker.communicate(timeout=120)
    assert (worker.returncode, "needs GPUs" in errors.splitlines()[-1]) == (5, True)
    assert "Traceback" not in errors


def errors_of_a_stopped_worker(worker, number, *, after):
    """Send a signal to a worker that has said some words; return what it says from then on."""
    # Should it say them in another way, it runs no longer than this.
    timer = threading.Timer(GANG_SECONDS, worker.kill)
    timer.start()
    assert any(after in line for line in worker.stderr)
    worker.send_signal(number)
    _, errors = worker.communicate(timeout=GRACE_SECONDS)
    timer.cancel()
    return errors


@no_gpu
@SIGNALS
def test_a_worker_that_waits_for_others_ends_soon_after_a_signal(monkeypatch, port, number, status):
    monkeypatch.setenv("LOGLEVEL", "INFO")
    worker = start(port=port, workers=2)
    errors = errors_of_a_stopped_worker(worker, number, after="Rendezvous'ing worker group")
    assert (worker.returncode, "Traceback" in errors) == (status, False)


@no_gpu
@SIGNALS
def test_a_gang_that_a_signal_ends_says_so_in_one_line(port, number, status):
    worker = start("--size", str(2**26), port=port)
    errors = errors_of_a_stopped_worker(worker, number, after="no GPU: computing")
    assert (worker.returncode, "Traceback" in errors) == (status, False)
    assert errors.splitlines()[-1].endswith(f": stopped by {number.name}")


def test_gpus_take_nccl_and_cpus_gloo():
    gpu, cpu = Device(torch.device("cuda", 0), "GPU"), Device(torch.device("cpu"), "CPU")
    assert (choose_backend("auto", gpu), choose_backend("auto", cpu)) == ("nccl", "gloo")
    with pytest.raises(NoSuchDevice):
        choose_backend("nccl", cpu)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_sum_exactly_by_nccl(command):
    count = torch.cuda.device_count()
    outcome = command("allreduce", "--json", "--size", str(2**24), processes=count)
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert (result["verified"], result["simulated"]) == (True, False)
    assert (result["metrics"]["ranks"], result["metrics"]["backend"]) == (count, "nccl")
