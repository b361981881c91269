# SPDX-License-Identifier: Apache-2.0
"""Runs in processes: every failure is reported in one line, and no process is left behind."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import sleep
from uuid import uuid4

import pytest
from processes import environment, run_process

from gpupack_simulator.errors import InvalidParameter, ProcessLost
from gpupack_simulator.runner import run_all

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,64000,262144,4,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1,1,460,\nb,1000,1,2,1000,\n"
REPLAY = ("replay", "--nodes", "nodes.csv", "--pods", "pods.csv", "--policies", "best-fit,fgd")
TWO = ("--seeds", "2", "-j", "2", "-q", "--json", "out.json")
ENDLESS = ("--departures", "--measured", "1e5", "--seeds", "2", "-j", "2", "-q")

UNGUARDED = "from gpupack_simulator.cli import main\nmain()\n"
INTERRUPTIBLE = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
{UNGUARDED}"""
"""A shell starts what it runs in the background with SIGINT ignored."""
OF_MAIN = """
from gpupack_simulator.runner import run_all
class Mine:
    def run(self, policy, seed): pass
run_all(Mine(), ["best-fit"], [0, 1], processes=2, quiet=True)
"""


@dataclass(frozen=True)
class Killing:
    """Sends a signal, and never ends by itself."""

    signal: signal.Signals
    parent: bool

    def run(self, policy, seed):
        os.kill(os.getppid() if self.parent else os.getpid(), self.signal)
        Event().wait()


@dataclass(frozen=True)
class Failing:
    error: type[Exception]
    arguments: tuple[str, ...]

    def run(self, policy, seed):
        raise self.error(*self.arguments)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def run_two(experiment):
    return run_all(experiment, ["best-fit"], [0, 1], processes=2, quiet=True)


@pytest.fixture
def mark(monkeypatch):
    """In the environment of everything that is started here, so that it can be found."""
    monkeypatch.setenv("GPUPACK_TEST_MARK", mark := uuid4().hex)
    return mark


def left_behind(mark):
    """Processes that bear the mark, other than zombies, which have none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def all_ended(mark):
    """A worker ends soon after the message on its socket."""
    for _ in range(600):
        if not left_behind(mark):
            return True
        sleep(0.05)
    return False


def test_a_killed_process_is_reported_and_the_others_end(mark):
    with pytest.raises(ProcessLost, match="was killed"):
        run_two(Killing(signal.SIGKILL, parent=False))
    assert not left_behind(mark)


def test_an_error_of_a_run_is_raised_in_the_calling_process(mark):
    with pytest.raises(InvalidParameter, match="of no use") as raised:
        run_two(Failing(InvalidParameter, ("of no use",)))
    assert "in run" in "".join(raised.value.__notes__)
    assert not left_behind(mark)


def test_an_error_that_cannot_be_sent_is_shown_with_its_traceback():
    with pytest.raises(RuntimeError, match=r"Unpicklable: this and that"):
        run_two(Failing(Unpicklable, ("this", "that")))


def test_an_experiment_that_cannot_be_sent_is_reported(mark):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        run_two(Unpicklable("this", "that"))
    assert not left_behind(mark)


@pytest.fixture
def interruptible():
    """A shell starts what it runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_runs_in_the_middle(mark):
    with pytest.raises(KeyboardInterrupt):
        run_all(Killing(signal.SIGINT, parent=True), ["best-fit"], [0], processes=2, quiet=True)
    assert not left_behind(mark)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    (tmp_path / "random.py").write_text("raise ImportError('a file of the user')\n")
    return tmp_path


def command(*arguments):
    return [sys.executable, "-P", "-m", "gpupack_simulator", *arguments]


def test_the_command_runs_in_any_folder_whatever_files_are_there(folder, mark):
    done = run_process(command(*REPLAY, *TWO), cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "out.json").exists()
    assert not left_behind(mark)


def test_a_script_without_a_guard_runs_as_any_other(folder, mark):
    (folder / "random.py").unlink()
    done = run_process([sys.executable, "unguarded.py", *REPLAY, *TWO], cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert not left_behind(mark)


def test_an_experiment_defined_in_the_main_program_is_refused(folder, mark):
    done = run_process([sys.executable, "-P", "-c", OF_MAIN], cwd=folder)
    assert done.returncode == 1
    assert "Mine stands in the main program" in done.stderr.splitlines()[-1]
    assert not left_behind(mark)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_process_behind(folder, mark, end):
    with subprocess.Popen(
        [sys.executable, "-P", "-c", INTERRUPTIBLE, *REPLAY, *ENDLESS],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while len(left_behind(mark)) < 3:
            assert process.poll() is None, process.stderr.read()
            sleep(0.05)
        process.send_signal(end)
        _, said = process.communicate(timeout=30)
    assert process.returncode == (1 if end is signal.SIGINT else -end)
    assert said.strip() == ("Aborted!" if end is signal.SIGINT else "")
    assert all_ended(mark)
