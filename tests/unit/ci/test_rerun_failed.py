# SPDX-License-Identifier: Apache-2.0
"""Results of a suite whose tests fail once, fail always, or never begin."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RERUN = Path(__file__).parents[3] / ".ci/rerun-failed"
# Each time that a test of the suite runs, a line is added to a file of its own.
HEADER = """
import pathlib, pytest

def runs(name):
    file = pathlib.Path(__file__).with_name(name)
    file.write_text(file.read_text() + "ran\\n" if file.exists() else "ran\\n")
    return file.read_text().count("ran")

def test_passes():
    runs("passes")
"""
FAILS_ONCE = """
@pytest.mark.parametrize("value", ["a b", "c"])
def test_fails_once(value):
    assert runs("fails-once-" + value) > 1
"""
SETUP_FAILS_ONCE = """
@pytest.fixture
def flaky():
    assert runs("setup") > 1

def test_setup_fails_once(flaky):
    pass
"""
FAILS_ALWAYS = """
def test_fails_always():
    assert not runs("fails-always")
"""
SETUP_FAILS_ALWAYS = """
@pytest.fixture
def broken():
    assert not runs("setup")

def test_setup_fails_always(broken):
    pass
"""


@pytest.fixture
def suite(tmp_path):
    """Runs a suite of these tests; answers its status, closing lines and flaky tests."""
    # The options of this run of pytest are not for the run below; plugins take a second to load.
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    pytest_alone = (sys.executable, "-B", "-m", "pytest", "-p", "xdist", "-c", "/dev/null")
    command = (*pytest_alone, f"--rootdir={tmp_path}")

    def run(*tests, options=("-n", "0")):
        (tmp_path / "test_it.py").write_text("".join((HEADER, *tests)))
        done = subprocess.run(
            [RERUN, *command, *options, "test_it.py"],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        closing = [line for line in lines if re.match(r"=+ .* in [0-9.]+s", line)]
        return done.returncode, closing, [line for line in lines if line.startswith("FLAKY ")]

    return run


def test_a_suite_that_passes_runs_once(suite):
    status, closing, flaky = suite()
    assert (status, len(closing), flaky) == (0, 1, [])


def test_tests_that_pass_when_they_run_again_are_named_as_flaky(suite, tmp_path):
    status, closing, flaky = suite(FAILS_ONCE, SETUP_FAILS_ONCE, options=("-n", "2"))
    assert status == 0
    assert sorted(flaky) == [
        "FLAKY test_it.py::test_fails_once[a b]",
        "FLAKY test_it.py::test_fails_once[c]",
        "FLAKY test_it.py::test_setup_fails_once",
    ]
    assert "1 passed" in closing[0]
    assert "3 passed" in closing[1]
    assert (tmp_path / "passes").read_text() == "ran\n"


@pytest.mark.parametrize("always", [FAILS_ALWAYS, SETUP_FAILS_ALWAYS])
def test_a_test_that_fails_twice_fails_the_suite(suite, always):
    status, closing, flaky = suite(FAILS_ONCE, always)
    assert status == 1
    assert len(flaky) == 2
    assert re.search("2 passed.*1 (failed|error)|1 failed, 2 passed", closing[1])


def test_the_second_run_ends_at_what_fails_again(suite, tmp_path):
    assert suite(FAILS_ALWAYS, FAILS_ONCE)[0] == 1
    assert (tmp_path / "fails-once-c").read_text() == "ran\n"


def test_failures_of_an_earlier_run_are_not_repeated(suite, tmp_path):
    assert suite(FAILS_ALWAYS)[0] == 1
    assert suite(SETUP_FAILS_ONCE)[0] == 0
    assert (tmp_path / "passes").read_text() == "ran\n" * 2


@pytest.mark.parametrize(
    ("broken", "options", "status"),
    [
        ("import no_such_module", ("-n", "0"), pytest.ExitCode.INTERRUPTED),
        ("import no_such_module", ("-n", "2"), pytest.ExitCode.INTERRUPTED),
        ("", ("-k", "no_such_test"), pytest.ExitCode.NO_TESTS_COLLECTED),
        ("", ("--no-such-option",), pytest.ExitCode.USAGE_ERROR),
    ],
)
def test_a_suite_that_does_not_start_or_has_no_tests_fails(suite, broken, options, status):
    ended, _, flaky = suite(broken, options=options)
    assert (ended, flaky) == (status, [])
