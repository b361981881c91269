# SPDX-License-Identifier: Apache-2.0
"""The failure of one rank is that of its gang, at once, whatever the others wait for."""

import itertools
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import PeersMissing, WrongResult

# Far longer than a gang may take to end, far shorter than what its ranks wait for.
ENDED_SECONDS = 240

on_cpus = pytest.mark.skipif(torch.cuda.is_available(), reason="a rank here takes a GPU each")
on_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

WORKER = """
import signal, sys, time
import torch
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import WorkloadError, WrongResult
from gpupack_workloads.settings import Gang, Options


def measure(options, backend):
    with group(backend, require_gpu=False) as rank:
        signal.signal(signal.SIGTERM, lambda *_: None)
        if rank.index == {failing}:
            raise {error}
        if rank.backend == "nccl":
            # What the one that failed never comes to: the host waits in torch, the GPU in NCCL.
            numbers = torch.ones(2**20, device=rank.device.torch)
            torch.distributed.all_reduce(numbers)
            torch.cuda.synchronize()
        while True:
            time.sleep(600)


if __name__ == "__main__":
    gang = Gang(
        workers=2,
        index=int(sys.argv[1]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        processes={processes},
    )
    try:
        launch(measure, Options(), gang)
    except WorkloadError as error:
        print(type(error).__name__, error)
        sys.exit(error.exit_status)
"""


def fail_as_rank_1():
    with group("gloo", require_gpu=False) as rank:
        if rank.index == 1:
            raise WrongResult("row 7 is wrong")
        # As a rank does that saves before it leaves, and is stuck in a collective.
        signal.signal(signal.SIGTERM, lambda *_: None)
        time.sleep(600)


@on_cpus
def test_ranks_that_wait_end_with_the_status_of_the_one_that_failed(gang):
    first, failed, last = gang(3, fail_as_rank_1)
    assert isinstance(failed, WrongResult)
    assert [type(each) for each in (first, last)] == [ChildProcessError] * 2
    assert first.args == last.args == (WrongResult.exit_status,)


def sum_for_ever(leave):
    with group("gloo", require_gpu=False) as rank:
        numbers = torch.ones(1024)
        for turn in itertools.count():
            if rank.index == 1 and turn == 3:
                leave()
            torch.distributed.all_reduce(numbers)


def fail():
    raise WrongResult("row 7 is wrong")


@on_cpus
def test_a_rank_that_is_killed_in_the_midst_of_a_sum_is_a_missing_peer(gang):
    first, killed = gang(2, sum_for_ever, partial(signal.raise_signal, signal.SIGKILL))
    assert killed.args == (-signal.SIGKILL,)
    assert isinstance(first, PeersMissing), first
    assert "another process of the gang is gone" in str(first)


@on_cpus
def test_who_loses_a_peer_in_the_midst_of_a_sum_tells_why_that_one_failed(gang):
    first, failed = gang(2, sum_for_ever, fail)
    assert isinstance(failed, WrongResult)
    assert isinstance(first, WrongResult), first
    assert str(first) == "process 1 of the gang: row 7 is wrong"


def ended(script, port):
    """Start both workers; return what they say and with which statuses they end."""
    workers = [
        subprocess.Popen(
            [sys.executable, script, str(index), str(port)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        said = [worker.communicate(timeout=ENDED_SECONDS)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return said, [worker.returncode for worker in workers]


@on_cpus
@pytest.mark.parametrize(
    ("failing", "error", "status", "reason"),
    [
        (0, 'WrongResult("row 7 is wrong")', 3, "WrongResult process 0"),
        (3, 'RuntimeError("NCCL error")', 1, "WorkloadError process 3"),
    ],
    ids=["typed, at the store's worker", "not expected, at another worker"],
)
def test_every_worker_ends_with_status_and_reason_of_the_rank_that_failed(
    tmp_path, port, failing, error, status, reason
):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(failing=failing, error=error, processes=2))
    said, statuses = ended(script, port)
    assert statuses == [status, status]
    assert reason in said[failing // 2]
    assert f"process {failing}" in said[1 - failing // 2]


@pytest.mark.gpu
@on_two_gpus
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_nccl_holds_ends_with_the_one_that_failed(tmp_path, port, failing):
    script = tmp_path / "worker.py"
    error = 'WrongResult("row 7 is wrong")'
    script.write_text(
        WORKER.format(failing=failing, error=error, processes=1).replace(
            "    gang = Gang(",
            '    import os\n    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]\n    gang = Gang(',
        )
    )
    started = time.monotonic()
    _, statuses = ended(script, port)
    assert statuses == [WrongResult.exit_status] * 2
    # torch's own time-out would be three minutes.
    assert time.monotonic() - started < 120
