# SPDX-License-Identifier: Apache-2.0
"""What a launcher makes of how its processes ended."""

import json
import logging
import socket
import sys

import pytest
from torch.distributed import DistStoreError
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from gpupack_workloads.distributed.failure import is_unexpected, unmet, why, write_reason
from gpupack_workloads.distributed.launch import launch, set_unique_name
from gpupack_workloads.distributed.rank import require_launcher, run_rank
from gpupack_workloads.errors import BadArgument, PeersMissing, Terminated, WorkloadError
from gpupack_workloads.settings import Gang, Options


@pytest.fixture
def failed(tmp_path):
    """The launcher's error where process 3 ended with a status and has left this file or none."""

    def failed(status):
        failure = ProcessFailure(
            local_rank=1, pid=7, exitcode=status, error_file=str(tmp_path / "error.json")
        )
        return why(ChildFailedError("run_rank", {3: failure}))

    return failed


def test_a_process_s_reason_comes_back_with_its_kind(failed, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    write_reason(BadArgument("size 3 is odd"))
    error = failed(2)
    assert (type(error), str(error)) == (BadArgument, "process 3: size 3 is odd")


def test_an_unexpected_error_is_reported_by_its_first_line(failed, tmp_path):
    message = {"message": "RuntimeError: no NCCL\nat a.cpp:1", "extraInfo": {"timestamp": "1"}}
    (tmp_path / "error.json").write_text(json.dumps({"message": message}))
    error = failed(1)
    assert (type(error), str(error)) == (WorkloadError, "process 3: RuntimeError: no NCCL")


@pytest.mark.parametrize(
    ("status", "reason"),
    [(-9, r"Signal 9 \(SIGKILL\) received by PID 7"), (4, "ended with 4; see its log above")],
)
def test_a_process_without_an_error_file_is_reported_by_its_exit(failed, status, reason):
    assert failed(status).args[0].startswith("process 3: ")
    with pytest.raises(WorkloadError, match=reason):
        raise failed(status)


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (ProcessExitedException("", 0, 7, exit_code=2), False),
        (ProcessExitedException("", 0, 7, exit_code=-11, signal_name="SIGSEGV"), True),
        (ProcessRaisedException("", 0, 7), True),
    ],
)
def test_torch_s_own_stack_is_kept_where_the_end_was_not_expected(error, logged):
    info = (type(error), error, None)
    record = logging.LogRecord("torch", logging.ERROR, "", 1, "failed", (), info)
    assert is_unexpected(record) is logged


def test_a_port_in_use_is_named_and_no_missing_peer(port):
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(
            BadArgument, match=f"port {port}, .* is in use: .* by GPUPACK_RENDEZVOUS=HOST:PORT"
        ),
    ):
        launch(measure, Options(), Gang(port=port, processes=1))


def measure(options, backend):
    raise AssertionError("nothing may start")


def test_a_worker_that_ends_before_it_is_counted_is_a_missing_peer(monkeypatch, port):
    def agent(config, entry):
        def run(*arguments):
            raise DistStoreError("wait timeout after 60000ms, keys: /assigned_ranks/1")

        return run

    monkeypatch.setattr("gpupack_workloads.distributed.launch.elastic_launch", agent)
    with pytest.raises(PeersMissing, match=r"2 workers did not meet at .*: wait timeout"):
        launch(measure, Options(), Gang(port=port, workers=2, processes=1))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RendezvousTimeoutError(), "train-0:29400: after 300 s they were not all there"),
        (RendezvousClosedError(), "train-0:29400: one of them has ended"),
    ],
)
def test_where_torch_has_no_word_for_it_the_missing_peer_is_explained(error, reason):
    found = unmet(error, Gang(host="train-0", workers=2), seconds=300)
    assert isinstance(found, PeersMissing)
    assert str(found) == f"2 workers did not meet at {reason}"


def test_what_torch_says_inside_is_said():
    error = RendezvousConnectionError("see inner exception")
    error.__cause__ = RuntimeError("timed out after 60000ms\nframe #0")
    assert str(unmet(error, Gang(), seconds=300)).endswith(":29400: timed out after 60000ms")


class Launcher:
    """Return the parent process by multiprocessing."""

    def __init__(self, *, alive):
        self.is_alive = lambda: alive


def test_a_process_whose_launcher_ended_before_torch_was_there_does_not_wait(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    monkeypatch.setattr("multiprocessing.parent_process", lambda: Launcher(alive=False))
    monkeypatch.setattr("gpupack_workloads.distributed.peers.end_process", sys.exit)
    with pytest.raises(SystemExit) as ended:
        run_rank(measure, Options(), "gloo")
    assert ended.value.code == Terminated.exit_status


@pytest.mark.parametrize("launcher", [None, Launcher(alive=True)])
def test_a_process_whose_launcher_lives_or_that_has_none_goes_on(monkeypatch, launcher):
    monkeypatch.setattr("multiprocessing.parent_process", lambda: launcher)
    require_launcher()


def test_workers_of_one_address_and_one_process_id_have_names_of_their_own():
    names = set()
    for worker in range(3):
        set_unique_name(worker)
        names.add(DynamicRendezvousHandler._node_desc_generator.generate("10.0.0.1"))
    assert len(names) == 3
