# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

PROGRAM = """
import asyncio, os, sys, time
from gpupack_agent import watchdog

async def main():
    watching = asyncio.create_task(watchdog.watch({seconds}))
    {meanwhile}
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    time.sleep({seconds} + 0.3)

asyncio.run(main())
"""


def run(meanwhile, *, seconds):
    environ = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(meanwhile=meanwhile, seconds=seconds)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=30,
    )


def test_an_agent_whose_loop_hangs_ends_and_tells_where():
    done = run("await asyncio.sleep(0); os.read(os.pipe()[0], 1)", seconds=0.2)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in main" in done.stderr


def test_an_agent_whose_loop_turns_is_left_alone_and_one_that_stops_is_too():
    done = run("await asyncio.sleep(0.5)", seconds=1.5)
    assert (done.returncode, done.stderr) == (0, "")
