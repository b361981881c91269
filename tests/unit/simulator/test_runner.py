# SPDX-License-Identifier: Apache-2.0
import os
import signal
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Event

import pytest

from gpupack_simulator.errors import ProcessLost
from gpupack_simulator.runner import run_all


@dataclass(frozen=True)
class Killing:
    """Sends a signal, and never ends by itself."""

    signal: signal.Signals
    parent: bool
    alive: Path | None = None
    """A FIFO that is held open as long as the process lives."""

    def run(self, policy, seed):
        held = self.alive.open("w") if self.alive else None
        os.kill(os.getppid() if self.parent else os.getpid(), self.signal)
        Event().wait()
        return held


def run_two(experiment):
    return run_all(experiment, ["best-fit"], [0, 1], processes=2, quiet=True)


def test_a_process_that_is_killed_is_told_of():
    with pytest.raises(ProcessLost, match="was killed"):
        run_two(Killing(signal.SIGKILL, parent=False))


@pytest.fixture
def interruptible():
    """A shell starts what it runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_runs_in_the_middle():
    with pytest.raises(KeyboardInterrupt):
        run_two(Killing(signal.SIGINT, parent=True))
    assert not active_children()


def test_runs_end_with_what_started_them_though_it_was_killed(tmp_path):
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    killed = get_context("spawn").Process(
        target=run_two, args=(Killing(signal.SIGKILL, parent=True, alive=alive),)
    )
    killed.start()
    assert alive.read_bytes() == b""
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
