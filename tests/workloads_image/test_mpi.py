# SPDX-License-Identifier: Apache-2.0
"""mpirun between two local hosts, by the launcher that gangs have; and the workload `mpi`.

The hosts are two addresses of the loopback interface: what is run at the other one goes by the
launcher's way, as it does between pods. tests/e2e/workloads has messages between real pods.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

LAUNCHER = Path(os.environ.get("GPUPACK_MPI_LAUNCHER", "/opt/gpupack-mpi/gpupack-mpi"))
HOSTS = ("127.0.0.1", "127.0.0.2")
SECONDS = 60
YIELDING = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""Ranks that wait leave the core to those they wait for."""

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
needs_launcher = pytest.mark.skipif(
    not LAUNCHER.exists() or shutil.which("mpirun") is None,
    reason="the launcher is not built: name one by GPUPACK_MPI_LAUNCHER",
)

RANKS = """
import os, sys, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
print("rank", rank, os.environ["GPUPACK_WORKER_INDEX"], os.environ["HOSTNAME"], flush=True)
exec(sys.argv[1])
"""
"""Without MPI's messages: two hosts of one name and one shared memory are more than it bears."""


class Ended(NamedTuple):
    """How a worker ended."""

    status: int
    message: str
    log: str
    after_seconds: float


@pytest.fixture
def gang(tmp_path):
    """Runs two workers of two processes each; the second's exit is optional."""

    workers = []

    def run(*command, only_first=False, end_when=""):
        began = time.monotonic()
        key = tmp_path / "key"
        key.write_bytes(secrets.token_bytes(32))
        for index in range(2):
            (tmp_path / f"message-{index}").touch()
            environ = os.environ | YIELDING | {
                "GPUPACK_WORKERS": "2",
                "GPUPACK_WORKER_INDEX": str(index),
                "GPUPACK_PROCESSES_PER_WORKER": "2",
                "GPUPACK_MPI_HOSTS": ",".join(HOSTS),
                "GPUPACK_MPI_LISTEN": HOSTS[index],
                "GPUPACK_MPI_KEY_FILE": str(key),
                "GPUPACK_RESULT_PATH": str(tmp_path / f"message-{index}"),
                "HOSTNAME": f"mpi-1-{index}",
            }  # fmt: skip
            with (tmp_path / f"log-{index}").open("wb") as log:
                worker = subprocess.Popen(
                    [LAUNCHER, "run", "--", *command], env=environ, stdout=log, stderr=log
                )
            workers.append(worker)
        if end_when:
            wait_for(tmp_path / "log-0", end_when, count=4)
            for worker in workers:
                worker.terminate()
        first = ended(0, workers[0], began)
        if only_first:
            workers[1].kill()
        return [first, ended(1, workers[1], began)]

    def ended(index, worker, began):
        status = worker.wait(SECONDS)
        message, log = (
            (tmp_path / f"{name}-{index}").read_text(errors="replace")
            for name in ("message", "log")
        )
        return Ended(status, message, log, time.monotonic() - began)

    yield run
    for worker in workers:
        worker.kill()


def wait_for(log, text, *, count):
    for _ in range(10 * SECONDS):
        if log.read_text(errors="replace").count(text) == count:
            return
        time.sleep(0.1)
    pytest.fail(f"{text!r} did not come: {log.read_text(errors='replace')}")


def ranks(then="pass"):
    return sys.executable, "-c", RANKS, then


@needs_launcher
def test_four_ranks_of_two_hosts_have_each_the_environment_of_its_own_host(gang):
    first, second = gang(*ranks())
    assert (first.status, second.status) == (0, 0), first.log + second.log
    assert sorted(line for line in first.log.splitlines() if line.startswith("rank")) == [
        "rank 0 0 mpi-1-0",
        "rank 1 0 mpi-1-0",
        "rank 2 1 mpi-1-1",
        "rank 3 1 mpi-1-1",
    ]


DIES = {
    "os.kill(os.getpid(), 9)": (137, "was ended by signal 9 (killed)"),
    "print('disk full', file=sys.stderr, flush=True); os._exit(5)": (
        5,
        "ended with exit code 5: disk full",
    ),
}


@needs_launcher
@pytest.mark.parametrize(("how", "reported"), DIES.items(), ids=["signal", "status"])
def test_a_rank_that_dies_ends_all_workers_and_its_own_says_why(gang, how, reported):
    status, words = reported
    first, second = gang(*ranks(f"if rank == 3: {how}\nelse: time.sleep(30)"))
    assert (first.status, second.status) == (status, status), first.log + second.log
    assert second.message == f"rank 3 of 4 in pod mpi-1-1 {words}"
    assert first.message == second.message
    assert first.after_seconds < SECONDS / 2


SAVES = """
import signal
def save(*_):
    time.sleep(0.3 * rank)
    print("saved", rank, flush=True)
    os._exit(7)
signal.signal(signal.SIGTERM, save)
print("at work", flush=True)
time.sleep(60)
"""


@needs_launcher
def test_all_ranks_save_their_state_after_a_signal(gang):
    first, second = gang(*ranks(SAVES), end_when="at work")
    assert (first.status, second.status) == (7, 7), first.log + second.log
    assert sorted(line for line in first.log.splitlines() if line.startswith("saved")) == [
        f"saved {rank}" for rank in range(4)
    ]


@needs_launcher
def test_a_program_that_is_not_there_is_named(gang):
    first, *_ = gang("no-such-program", only_first=True)
    assert first.status == 127
    assert '"no-such-program": executable file not found' in first.message


@needs_launcher
def test_who_has_not_the_key_of_the_attempt_is_not_let_in(tmp_path):
    for name in ("ours", "another"):
        (tmp_path / name).write_bytes(secrets.token_bytes(32))
    environ = os.environ | {
        "GPUPACK_WORKERS": "2",
        "GPUPACK_WORKER_INDEX": "1",
        "GPUPACK_PROCESSES_PER_WORKER": "1",
        "GPUPACK_MPI_HOSTS": "127.0.0.1,127.0.0.3",
        "GPUPACK_MPI_LISTEN": "127.0.0.3",
        "GPUPACK_MPI_KEY_FILE": str(tmp_path / "ours"),
    }
    with subprocess.Popen([LAUNCHER, "run", "--", "x"], env=environ, stderr=subprocess.PIPE) as one:
        assert b"waits for worker 0" in one.stderr.readline()
        called = {}
        for name in ("another", "ours"):
            called[name] = subprocess.run(
                [LAUNCHER, "remote", "127.0.0.3", "echo", "let", "in"],
                env=environ | {"GPUPACK_MPI_KEY_FILE": str(tmp_path / name)},
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        one.terminate()
        assert b"refused a connection" in one.stderr.read()
    assert (called["another"].returncode, called["another"].stdout) == (255, b"")
    assert (called["ours"].returncode, called["ours"].stdout) == (0, b"let in\n")


def mpirun(count, *arguments):
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    command = ["mpirun", *root, "--oversubscribe", "-n", str(count), sys.executable]
    return subprocess.run(
        [*command, *arguments],
        env=os.environ | YIELDING,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )


@needs_mpirun
def test_the_workload_is_verified_and_one_rank_reports(tmp_path):
    workload = (
        "-m",
        "gpupack_workloads",
        "mpi",
        "--size=512",
        "--grid=16",
        "--sweeps=5",
        "--json",
    )
    done = mpirun(2, *workload)
    assert done.returncode == 0, done.stderr
    (result,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    metrics = result["metrics"]
    assert result["verified"]
    assert (metrics["ranks"], metrics["workers"], metrics["grid"]) == (2, 1, 16)
    assert metrics["halo_error"] <= metrics["halo_error_bound"]
    assert metrics["last_change"] > 0
    assert result["communication"]["transport"] == ""
    assert {"gloo_bus_gb_per_s", "nccl_bus_gb_per_s"} & metrics.keys()
    assert [row["size_bytes"] for row in result["rows"]] == [8, 64, 512]
