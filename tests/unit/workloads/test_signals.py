# SPDX-License-Identifier: Apache-2.0
"""Signals to end during a workload's different activities; the workloads themselves need torch."""

import os
import signal
import subprocess
import sys
import types

import pytest

from gpupack_workloads import transformer
from gpupack_workloads.errors import Interrupted
from gpupack_workloads.settings import Gang
from gpupack_workloads.signals import EndRequested, raising_on_signals
from gpupack_workloads.transformer.options import TransformerOptions

SIGNALS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
SECONDS = 30

PROGRAM = """
import asyncio, sys, time, types

from gpupack_workloads import commands
from gpupack_workloads.cli import main

def says():
    print("at work", flush=True)

def computes(options):
    says()
    while True:
        time.sleep(0.01)

def serves(options):
    def spin():
        says()
        while True:
            time.sleep(0.01)

    async def callbacks():
        asyncio.get_running_loop().call_soon(spin)
        await asyncio.sleep(60)

    asyncio.run(callbacks())

name, way = sys.argv[1:]
commands.load(name)  # before its module is another
sys.modules[f"gpupack_workloads.{name}"] = types.SimpleNamespace(run=globals()[way])
main([name], prog_name="workload")
"""


@pytest.fixture
def at_work():
    """Return a function that starts an endless workload and waits until it runs."""
    started = []

    def start(name, way):
        environ = os.environ | {
            "GPUPACK_RESULT_PATH": os.devnull,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        pipe = subprocess.PIPE
        line = [sys.executable, "-c", PROGRAM, name, way]
        process = subprocess.Popen(line, env=environ, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        assert process.stdout.readline() == "at work\n", process.stderr.read()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@SIGNALS
@pytest.mark.parametrize("way", ["computes", "serves"])
def test_a_workload_that_a_signal_stops_prints_one_line(at_work, way, number, status):
    process = at_work("matmul", way)
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    (line,) = errors.splitlines()
    assert (process.returncode, line.endswith(f": stopped by {number.name}")) == (status, True)


@SIGNALS
def test_a_rank_of_mpirun_is_ended_by_the_signal_itself(at_work, number, status):
    process = at_work("mpi", "computes")
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    assert (128 - process.returncode, errors) == (status, "")


def test_signal_handlers_are_restored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with raising_on_signals():
            assert callable(signal.getsignal(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_training_that_is_stopped_before_it_begins_can_continue_later(monkeypatch):
    def run(options, gang):
        raise EndRequested(signal.SIGTERM)

    session = types.SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "gpupack_workloads.transformer.session", session)
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        transformer.run(TransformerOptions(), Gang())
