# SPDX-License-Identifier: Apache-2.0
"""What the documents tell a reader to type works."""

import os
import re
import subprocess
import sys

import pytest
from harness import ROOT, STATE

CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
DOCUMENTS = ("README.md",)


def commands():
    """Every `$ command` of the documents' console blocks, in order."""
    for name in DOCUMENTS:
        for block in CONSOLE.findall((ROOT / name).read_text()):
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield line.removeprefix("$ ")


@pytest.fixture(scope="module")
def demo():
    """The documents speak of the jobs that the demo leaves behind."""
    done = subprocess.run(
        [sys.executable, "demo/run.py"], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield done.stdout
    subprocess.run(
        [STATE / "bin" / "kubectl", "--kubeconfig", STATE / "kubeconfig", "delete", "gj", "--all"],
        check=True,
        capture_output=True,
    )


def test_the_demo_shows_what_it_promises(demo):
    for promised in ("TFLOP/s", "gpupack chooses the node", "are missing", "export KUBECONFIG="):
        assert promised in demo


def test_the_commands_of_the_readme_work_one_after_the_other(demo):
    environ = os.environ | {
        "KUBECONFIG": str(STATE / "kubeconfig"),
        "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
    }
    for command in commands():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=environ,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
