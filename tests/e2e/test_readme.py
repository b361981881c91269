# SPDX-License-Identifier: Apache-2.0
"""What the documents tell a reader to type works."""

import os
import re
import subprocess
import sys

import pytest
from harness import ROOT, STATE

CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
SAMPLE = re.compile(r"The last lines of the demo:\n\n```\n(.*?)```", re.DOTALL)
FIGURE = re.compile(r"[0-9]+([.][0-9]+)?")
TABLE_COMMAND = "kubectl get gj -o wide"
CONSTANT_COLUMNS = ("NAME", "PHASE", "WORKERS", "GPUS", "REASON", "RESULT")
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
        [sys.executable, "hack/demo.py"], cwd=ROOT, text=True, capture_output=True, check=False
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


def outputs(text):
    """Return the output of each `$ command` in a text, to the next blank line."""
    parts = re.findall(r"^\$ (.*)\n((?:.+\n)*)", text, re.MULTILINE)
    return {command: lines.splitlines() for command, lines in parts}


def without_figures(text):
    """Return a text with each number replaced by #: other machines measure other values."""
    return FIGURE.sub("#", text)


def cells(table):
    """Return the rows of kubectl's table as dicts; a cell ends where the next column begins."""
    header, *rows = table
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    names = header.split()
    return names, [
        {name: row[low:high].strip() for name, (low, high) in zip(names, spans, strict=True)}
        for row in rows
    ]


def test_the_sample_of_the_readme_is_what_the_demo_prints(demo):
    (sample,) = SAMPLE.findall((ROOT / "README.md").read_text())
    shown, printed = outputs(sample), outputs(demo)
    assert shown.keys() <= printed.keys()
    shown_columns, shown_rows = cells(shown.pop(TABLE_COMMAND))
    columns, rows = cells(printed[TABLE_COMMAND])
    assert columns == shown_columns
    for row, shown_row in zip(rows, shown_rows, strict=True):
        for column in CONSTANT_COLUMNS:
            assert without_figures(row[column]) == without_figures(shown_row[column])
    for command, lines in shown.items():
        for line, shown_line in zip(printed[command], lines, strict=True):
            start = shown_line.removesuffix("…")
            assert without_figures(line).startswith(without_figures(start))


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
