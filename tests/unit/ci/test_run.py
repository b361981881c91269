# SPDX-License-Identifier: Apache-2.0
"""The end of continuous integration: closing lines, failed and flaky tests, an exit status."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / ".ci/run"
MAKEFILE = RUN.parents[1] / "Makefile"
SUITE = """\
FAILED tests/e2e/test_a.py::test_b - assert 1 == 2
=== 1 failed, 8 passed in 81.02s (0:01:21) ===
FLAKY tests/e2e/test_a.py::test_b
=== 1 passed, 8 deselected in 3.10s ===
== test-parallel: 84.9 s
"""
CLOSING = """\
FAILED tests/e2e/test_a.py::test_b - assert 1 == 2
=== 1 failed, 8 passed in 81.02s (0:01:21) ===
FLAKY tests/e2e/test_a.py::test_b
=== 1 passed, 8 deselected in 3.10s ===
"""


@pytest.fixture
def run(tmp_path):
    """Runs it where make prints what a suite prints, and ends with a status for some goals."""

    def ci(**statuses):
        cases = "".join(f"*{goal}*) exit {status};; " for goal, status in statuses.items())
        make = f'#!/bin/sh\necho "$*" >>made\ncat suite\ncase "$*" in {cases}esac\n'
        (tmp_path / "make").write_text(make)
        (tmp_path / "make").chmod(0o755)
        (tmp_path / "suite").write_text(SUITE)
        (tmp_path / ".ci").mkdir()
        script = shutil.copy(RUN, tmp_path / ".ci/run")
        environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run([script], env=environ, capture_output=True, text=True, check=False)
        return done, (tmp_path / "made").read_text().splitlines()

    return ci


def test_its_last_lines_are_the_closing_lines_and_the_tests_that_failed_or_are_flaky(run):
    done, made = run()
    assert done.returncode == 0
    assert done.stdout.endswith(CLOSING * 3)
    assert made[-1] == "cluster-down"


@pytest.mark.parametrize("goal", ["setup", "lint", "test"])
def test_a_part_that_fails_fails_it_and_the_others_still_run(run, goal):
    done, made = run(**{goal: 2})
    assert done.returncode == 2
    assert len(made) == 4
    assert made[-1] == "cluster-down"


def test_the_page_has_its_modules_before_the_unit_tests_which_skip_its_cases_without(run):
    _, made = run()
    lint = next(at for at, goals in enumerate(made) if "lint-dashboard" in goals)
    assert lint < next(at for at, goals in enumerate(made) if goals.endswith(" test"))
    rule = re.search(r"^lint-dashboard: (.*?) ##", MAKEFILE.read_text(), re.MULTILINE)
    assert rule.group(1) == "$(NODE_STAMP)"
