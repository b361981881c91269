# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a training by messages and end of its process, which is a replacement."""

import multiprocessing
import signal
import subprocess
import sys
import time

import pytest

from gpupack_workloads.errors import (
    OutOfMemory,
    PeersMissing,
    Terminated,
    WorkloadError,
    WrongResult,
)
from gpupack_workloads.results import Result
from gpupack_workloads.tensorflow import supervised
from gpupack_workloads.tensorflow.options import TensorFlowOptions
from gpupack_workloads.tensorflow.setup import setup_for
from gpupack_workloads.tensorflow.supervised import Child, Failed, WorkersMet, run_supervised

RESULT = Result(workload="tensorflow", headline="h", verified=True, simulated=True, metrics={})
SPAWN = multiprocessing.get_context("spawn")


def say(connection, words, end):
    """Start a process that sends messages and ends, by a signal if one is given."""
    for word in words:
        connection.send(word)
    if end is not None:
        signal.raise_signal(end)


@pytest.fixture
def outcome():
    """Return the outcome of a process that sends these messages."""
    started = []

    def outcome(*words, end=None, workers=2, seconds=60.0):
        ours, theirs = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=say, args=(theirs, words, end), daemon=True)
        process.start()
        started.append(process)
        theirs.close()
        return Child(process, ours, workers, time.monotonic() + seconds).outcome()

    yield outcome
    for process in started:
        process.kill()
        process.join()


def test_workers_meet_and_return_one_result(outcome):
    assert outcome(WorkersMet(), RESULT) == RESULT


@pytest.mark.parametrize("kind", [OutOfMemory, PeersMissing, WorkloadError])
def test_an_error_of_the_child_is_raised_in_the_parent(outcome, kind):
    with pytest.raises(kind, match="why") as raised:
        outcome(WorkersMet(), Failed(kind.exit_status, "why"))
    assert type(raised.value) is kind


def test_a_wrong_result_keeps_its_figures(outcome):
    with pytest.raises(WrongResult) as raised:
        outcome(Failed(WrongResult.exit_status, "wrong", RESULT))
    assert raised.value.result == RESULT


def test_a_child_that_ends_without_a_message_is_reported_with_its_status(outcome):
    with pytest.raises(WorkloadError, match="ended by signal 9"):
        outcome(WorkersMet(), end=signal.SIGKILL)
    with pytest.raises(WorkloadError, match="ended by status 0"):
        outcome()


def test_tensorflows_abort_in_a_gang_is_another_workers_loss(outcome):
    with pytest.raises(PeersMissing, match="another worker is lost"):
        outcome(WorkersMet(), end=signal.SIGABRT)
    with pytest.raises(WorkloadError, match="ended by signal 6") as raised:
        outcome(end=signal.SIGABRT, workers=1)
    assert type(raised.value) is WorkloadError


def test_workers_that_do_not_meet_in_time_are_missing():
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    with pytest.raises(PeersMissing, match="2 workers did not meet within"):
        Child(process, ours, 2, time.monotonic()).outcome()
    process.kill()
    process.join()
    theirs.close()


def test_an_unexpected_error_is_reported_and_the_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    # There is no TensorFlow here, or a GPU is missing: the process fails either way.
    options = TensorFlowOptions(require_gpu=True)
    with pytest.raises(WorkloadError, match=r"tensorflow|GPU"):
        run_supervised(options, setup_for(options, {}))
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_the_training():
    code = (
        "import sys\n"
        "from gpupack_workloads.tensorflow import supervised\n"
        "from gpupack_workloads.errors import Terminated\n"
        "with supervised._raising_on_signals():\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        sys.stdin.read()\n"
        "    except Terminated as error:\n"
        "        print(error)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopped by SIGTERM\n"


def test_signals_that_end_a_training_have_their_status():
    with pytest.raises(Terminated):
        supervised._end(signal.SIGTERM, None)
