# SPDX-License-Identifier: Apache-2.0
"""These tests run where torch is: in the image `workloads-test`, as a pod of the cluster suite."""

import contextlib
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import queue as queue_module
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from gpupack_workloads.settings import FUSED_MULTIPLY_ADD, NO_MULTICAST

# Tests that use NCCL and Triton themselves have no command around them that would say so.
os.environ |= NO_MULTICAST | FUSED_MULTIPLY_ADD

# Processes that a test spawns import its functions by name, and get this path.
sys.path.insert(0, str(Path(__file__).parent))

GANG_SECONDS = 90
"""A gang that hangs is named by its test, and does not use up the time of all the others."""

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")


def pytest_collection_modifyitems(items):
    """On CPUs, the interpreter would take minutes for what is meant for a GPU."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def has_gpu() -> bool:
    torch = importlib.import_module("torch")
    return bool(torch.cuda.is_available())


PORTS_OF_A_WORKER = 1000
_turns = itertools.count()


def free_port() -> int:
    """Return a port that no other worker of pytest takes, and that the kernel does not hand out.

    The kernel hands out ports from 32768 on for connections and for port 0.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 12_000 + worker % 16 * PORTS_OF_A_WORKER
    for turn in itertools.islice(_turns, PORTS_OF_A_WORKER):
        port = first + turn % PORTS_OF_A_WORKER
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise RuntimeError(f"no port is free from {first} to {first + PORTS_OF_A_WORKER - 1}")


def place(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun would tell a process."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@pytest.fixture
def alone(monkeypatch):
    """Makes this process the only rank of a gang that a test joins."""
    for name, value in place(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)


def answer(queue, environ, rank, function, arguments):
    os.environ.update(environ)
    try:
        queue.put((rank, function(*arguments)))
    except Exception as error:  # noqa: BLE001  whatever it is, the test wants to see it
        traceback.print_exc()
        queue.put((rank, error))


def answers_of(processes, queue, *, seconds=GANG_SECONDS):
    answers, deadline = {}, time.monotonic() + seconds
    while any(process.is_alive() for process in processes) or not queue.empty():
        if time.monotonic() > deadline:
            end(processes)
            pytest.fail(f"of {len(processes)} ranks, {len(answers)} answered within {seconds} s")
        with contextlib.suppress(queue_module.Empty):
            rank, found = queue.get(timeout=0.1)
            answers[rank] = found
    killed = {rank: ChildProcessError(p.exitcode) for rank, p in enumerate(processes)}
    return [(killed | answers)[rank] for rank in range(len(processes))]


def end(processes):
    for process in processes:
        process.kill()
        process.join()


@pytest.fixture
def gang():
    """Runs a function in forked ranks on CPUs; returns what each gives back, or its error.

    A rank that was killed has left a ChildProcessError.

    They are forked because an import of torch takes each of them seconds; so no test that has
    touched a GPU may use this.
    """

    def run(ranks, function, *arguments):
        context, port = multiprocessing.get_context("fork"), free_port()
        queue = context.Queue()
        processes = [
            context.Process(
                target=answer, args=(queue, place(rank, ranks, port), rank, function, arguments)
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        return answers_of(processes, queue)

    return run


@pytest.fixture
def kept_bytes():
    """Counts what a forward pass keeps for the backward pass, each storage once, some aside."""

    def kept(forward, others):
        torch = importlib.import_module("torch")
        storages = {}

        def note(tensor):
            storage = tensor.untyped_storage()
            # Held here as well, so that no address comes back for another one.
            storages[storage.data_ptr()] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            forward()
        own = {tensor.untyped_storage().data_ptr() for tensor in others}
        return sum(s.nbytes() for place, s in storages.items() if place not in own)

    return kept


@pytest.fixture
def port():
    """Return a free port."""
    return free_port()


@pytest.fixture
def command():
    """Runs a workload's command as one worker of several processes; returns how it ended."""

    def run(*arguments, processes=2):
        environ = os.environ | {
            "GPUPACK_RENDEZVOUS": f"127.0.0.1:{free_port()}",
            "GPUPACK_PROCESSES_PER_WORKER": str(processes),
            "GPUPACK_RESULT_PATH": os.devnull,
        }
        line = [sys.executable, "-m", "gpupack_workloads", *arguments]
        return subprocess.run(
            line, env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    return run
