# SPDX-License-Identifier: Apache-2.0
import os
import time

from click.testing import CliRunner

from gpupack_agent import probe
from gpupack_agent.__main__ import main


def test_a_fresh_sign_of_a_registered_agent_is_alive_and_ready_whatever_the_wall_clock(tmp_path):
    path = tmp_path / "run/alive"
    probe.leave(path, probe.Sign(registered=True))
    os.utime(path, (1, 1))
    assert probe.verdict(path, ready=True) == ""


def test_an_unregistered_agent_is_alive_but_not_ready(tmp_path):
    path = tmp_path / "alive"
    probe.leave(path, probe.Sign(registered=False))
    assert probe.verdict(path, ready=False) == ""
    assert "not registered" in probe.verdict(path, ready=True)


def test_an_old_sign_is_a_hanging_agent_whatever_the_wall_clock(tmp_path):
    path = tmp_path / "alive"
    probe.leave(path, probe.Sign(registered=True, at=time.monotonic() - 60))
    os.utime(path, (0, time.time() + 3600))
    assert "hangs" in probe.verdict(path, ready=False)


def test_the_command_fails_without_a_sign_of_life(tmp_path):
    environ = {"GPUPACK_PROBE_FILE": str(tmp_path / "alive")}
    result = CliRunner(env=environ).invoke(main, ["probe"])
    assert result.exit_code == 1
    assert "no sign of life" in result.output
