# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import time

from gpupack_agent import liveness


def test_a_fresh_sign_of_a_registered_agent_is_alive_and_ready_whatever_the_wall_clock(tmp_path):
    path = tmp_path / "run/alive"
    liveness.write(path, registered=True)
    os.utime(path, (1, 1))
    assert liveness.problem(path, ready=True) == ""


def test_an_unregistered_agent_is_alive_but_not_ready(tmp_path):
    path = tmp_path / "alive"
    liveness.write(path, registered=False)
    assert liveness.problem(path, ready=False) == ""
    assert "not registered" in liveness.problem(path, ready=True)


def test_an_old_sign_is_a_hanging_agent_whatever_the_wall_clock(tmp_path):
    path = tmp_path / "alive"
    liveness.write(path, registered=True, at=time.monotonic() - 60)
    os.utime(path, (0, time.time() + 3600))
    assert "hangs" in liveness.problem(path, ready=False)


def probe(path, *arguments):
    environ = {"PYTHONPATH": ":".join(each for each in sys.path if each)}
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpupack_agent.probe", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environ | {"GPUPACK_PROBE_FILE": str(path)},
        timeout=30,
    )


def test_the_command_fails_without_a_sign_of_life(tmp_path):
    done = probe(tmp_path / "alive")
    assert done.returncode == 1
    assert "no sign of life" in done.stderr


def test_the_command_fails_where_the_file_holds_something_else(tmp_path):
    path = tmp_path / "alive"
    path.write_text("{")
    assert "no sign of life" in probe(path).stderr


def test_the_probe_distinguishes_a_ready_agent_from_a_live_one(tmp_path):
    path = tmp_path / "alive"
    liveness.write(path, registered=False)
    assert [probe(path, *arguments).returncode for arguments in ((), ("--ready",))] == [0, 1]
    liveness.write(path, registered=True)
    assert probe(path, "--ready").returncode == 0


def test_a_probe_imports_none_of_the_agent_s_libraries(tmp_path):
    """They would make the probes most of what an agent at rest costs."""
    imported = {line.rpartition("|")[2].strip() for line in probe(tmp_path).stderr.splitlines()}
    assert "gpupack_agent.liveness" in imported
    assert not imported & {"asyncio", "click", "msgspec", "dataclasses", "logging"}


PROGRAM = """
import asyncio, os, sys, time
from gpupack_agent import watchdog

async def main():
    watching = asyncio.create_task(watchdog.watchdog({seconds}))
    {body}
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    time.sleep({seconds} + 0.3)

asyncio.run(main())
"""


def run(body, *, seconds):
    environ = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body, seconds=seconds)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=30,
    )


def test_an_agent_whose_loop_hangs_ends_with_a_traceback():
    done = run("await asyncio.sleep(0); os.read(os.pipe()[0], 1)", seconds=0.2)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in main" in done.stderr


def test_the_watchdog_ends_neither_a_running_nor_a_stopping_agent():
    done = run("await asyncio.sleep(0.5)", seconds=3)
    assert (done.returncode, done.stderr) == (0, "")
