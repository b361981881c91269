# SPDX-License-Identifier: Apache-2.0
"""docs/simulator.md is true: its commands run and print what it shows.

GPUPACK_WRITE_GOLDEN=1 writes what they print into the document.
"""

import os
import re
import shlex
from pathlib import Path

import pytest
from alike import assert_alike
from click.testing import CliRunner

from gpupack_simulator.cli import main
from gpupack_terminal.screens import Size

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "simulator.md"
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(
    r"^```console\n\$ gpupack-simulator ([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = CONSOLE.findall(GUIDE.read_text())


@pytest.fixture(autouse=True)
def reader(tmp_path, monkeypatch):
    """Write the guide's files next to the examples, as a reader does."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, content in FILE.findall(GUIDE.read_text()):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpupack_terminal.screens.size_of", lambda _stream: Size(100))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)


def printed(command):
    arguments = [
        *shlex.split(command),
        *([] if command.startswith(("step", "what-if")) else ["-j", "1"]),
    ]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines()).lstrip("\n")


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_a_command_of_the_guide_prints_what_the_guide_shows(command, shown):
    found = printed(command)
    if os.environ.get("GPUPACK_WRITE_GOLDEN"):
        head = f"```console\n$ gpupack-simulator {command}\n"
        text = GUIDE.read_text()
        GUIDE.write_text(text.replace(f"{head}{shown}```", f"{head}{found}```"))
        return
    assert_alike(found, shown)


@pytest.mark.parametrize("example", PYTHON.findall(GUIDE.read_text()))
def test_a_library_example_of_the_guide_runs(example):
    exec(compile(example, str(GUIDE), "exec"), {})
