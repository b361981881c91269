# SPDX-License-Identifier: Apache-2.0
"""Every command that the documents show of our console scripts works as a user runs it.

In a process and a folder of its own, started by the script that pip wrote; and nothing that it
started outlives it.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(sys.executable).parent
COMPONENTS = sorted(
    path.parent for path in (*ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml"))
)
GUIDE = (ROOT / "docs/simulator.md").read_text()
README = (ROOT / "README.md").read_text()
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^ *(?:\$ )?(?:\.dev/venv/bin/)?(gpupack-.*?)(?:  +#.*)?$", re.MULTILINE)
REPLAYED = "--nodes NODES.csv --pods PODS.csv --policies best-fit --demand 1.3"
"""The text that replaces the guide's `…`."""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,64000,262144,4,T4\n"
LISTED = """
items:
  - metadata: {name: n1, labels: {nvidia.com/gpu.product: H100, nvidia.com/gpu.memory: "81559"}}
    status: {allocatable: {cpu: "64", memory: 256Gi, nvidia.com/gpu: "8"}}
"""
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "a,1000,1,1,460,\nb,1000,1,1,1000,T4|P100\nc,1000,1,0,0,\nd,1000,1,2,1000,\n"
)


def documented():
    """The commands of all blocks, each on one line."""
    for text in (README, GUIDE):
        for block in BLOCK.findall(text):
            yield from COMMAND.findall(re.sub(r"  +#[^\n]*$|\\\n", "", block, flags=re.MULTILINE))


def scripts():
    """Names of the console scripts of all components."""
    for component in COMPONENTS:
        project = tomllib.loads((component / "pyproject.toml").read_text())["project"]
        yield from project.get("scripts", {})


INSTALLED = pytest.mark.skipif(
    not all((SCRIPTS / script).exists() for script in scripts()),
    reason="gpupack is not installed in this environment; `make venv` makes one in which it is",
)
pytestmark = [INSTALLED, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path):
    """A user's own folder with the files that the guide speaks of."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, content in FILE.findall(GUIDE):
        (tmp_path / name).write_text(content)
    (tmp_path / "SCENARIO.yaml").symlink_to(ROOT / "examples/simulator/classroom.yaml")
    (tmp_path / "jobs.yaml").symlink_to("more.yaml")
    (tmp_path / "NODES.csv").write_text(NODES)
    (tmp_path / "PODS.csv").write_text(PODS)
    (tmp_path / "nodes-of-mine.yaml").write_text(LISTED)
    (tmp_path / "rules.yaml").write_text("discipline: backfill\n")
    return tmp_path


def run(command, folder):
    """Run a command in its own session, and kill the session after a timeout."""
    arguments = shlex.split(command.replace("…", REPLAYED))
    with subprocess.Popen(
        [SCRIPTS / arguments[0], *arguments[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            # Returns when no process holds the pipes, so not before the last child has ended.
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, err


@pytest.mark.parametrize("command", list(dict.fromkeys(documented())))
def test_a_documented_command_ends_well_and_leaves_no_process(command, folder):
    status, out, err = run(command, folder)
    assert (status, "Traceback" in err) == (0, False), err
    assert out or (folder / "out").is_dir()


@pytest.mark.parametrize("script", list(scripts()))
def test_a_console_script_says_what_it_does(script, folder):
    status, out, err = run(f"{script} --help", folder)
    assert (status, err) == (0, "")
    # kubectl's users type its plugins as words.
    assert out.startswith(f"Usage: {script.replace('kubectl-', 'kubectl ')} ")
