# SPDX-License-Identifier: Apache-2.0
"""Run the Go tests of the launcher of mpirun's ranks."""

import os
import pathlib
import shutil
import subprocess

import pytest

LAUNCHER = pathlib.Path(__file__).parents[3] / "agent/launcher"
GO = shutil.which("go")


@pytest.mark.skipif(GO is None, reason="there is no Go on PATH, which the launcher is written in")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("command", ["vet", "test"])
def test_go_finds_no_fault_with_the_launcher(command):
    """Where Go has not done so before, it compiles its own library first."""
    environ = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [GO, command, "."], cwd=LAUNCHER, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_launcher_is_of_debians_go_and_needs_nothing_else():
    """Its image has no newer one, and downloads nothing for it."""
    assert (LAUNCHER / "go.mod").read_text() == "module gpupack.dev/launcher\n\ngo 1.19\n"
