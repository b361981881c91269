# SPDX-License-Identifier: Apache-2.0
"""Accepted Go versions, and the message on a host without Go."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def check(tmp_path):
    """Runs the check on a host with this Go, where Debian's package has that version."""

    def run(*, go=None, packaged="1.19~1"):
        tools = {"apt-cache": f"echo '  Candidate: 2:{packaged}'", "dpkg": "echo amd64"}
        tools["go"] = f"echo go{go}" if go else "exit 127"
        for name, body in tools.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)
        environ = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(
            [ROOT / ".ci/check-go"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize("version", ["1.21.0", "1.22.2", "1.26.8"])
def test_any_go_that_fetches_newer_ones_will_do(check, version):
    assert check(go=version).returncode == 0


def test_an_older_go_is_answered_with_one_line_that_installs_the_right_one(check):
    refused = check(go="1.19.8")
    assert refused.returncode == 1
    assert "go1.19.8 is on PATH" in refused.stderr
    assert "curl -fsSL https://go.dev/dl/go1." in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_missing_and_an_outdated_go_package_get_the_same_message(check):
    assert "none is on PATH" in check().stderr
