# SPDX-License-Identifier: Apache-2.0
"""The output of a step of make while it runs and when it has ended."""

import os
import subprocess
from pathlib import Path

import pytest

STEP = Path(__file__).parents[3] / ".ci/step"


@pytest.fixture
def step(tmp_path):
    # These tests are themselves a step of make, with settings of its own.
    inherited = {name: value for name, value in os.environ.items() if "STEP_" not in name}

    def run(command, **environ):
        return subprocess.run(
            [STEP, "name", "bash", "-c", command],
            cwd=tmp_path,
            env=inherited | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


def test_a_long_step_says_how_long_it_takes_and_what_it_said_last(step):
    output = step("echo compiling; sleep 3", STEP_TICK="1", STEP_SECONDS="420").stdout
    assert "s of about 420  compiling\n" in output


def test_a_short_step_says_its_seconds_alone(step, tmp_path):
    lines = step("echo quiet").stdout.splitlines()
    assert lines[0] == "== name"
    assert lines[1].startswith("== name: ")
    assert len(lines) == 2
    assert (tmp_path / ".dev/log/name.log").read_text() == "quiet\n"


def test_a_step_that_fails_shows_the_end_of_its_log_and_its_status(step):
    done = step("echo why; exit 7")
    assert done.returncode == 7
    assert "why" in done.stdout
    assert "failed with status 7" in done.stderr


def test_a_daemon_that_a_step_leaves_behind_does_not_keep_it_telling(step):
    """Its lines come from a process that ends with it: else this would wait for the daemon."""
    done = step("sleep 35 >/dev/null 2>&1 & disown", STEP_TICK="1")
    assert done.stdout.count("\n") == 2
