# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md on this machine's backend, each in a separate process."""

import importlib.util
import os
import re

import pytest
import python_page
import yaml

from gpupack import GpuConfig
from gpupack.config import parse_config

EXAMPLES = dict(python_page.examples())
FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow"}


def needed(name):
    """Return the framework of an example; None: it needs none."""
    return FRAMEWORKS.get(name.rpartition("-")[0])


def test_every_section_of_the_docs_has_its_examples():
    assert len(EXAMPLES) >= 9
    assert {needed(name) for name in EXAMPLES} == {None, "torch", "tensorflow"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_docs_runs_on_this_machine(name, tmp_path):
    if needed(name) and importlib.util.find_spec(needed(name)) is None:
        pytest.skip(f"{needed(name)} is not installed")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GPUPACK_BACKEND": "this-machine",
        "GPUPACK_SIMULATED_GPUS": "8xH100",
        "GPUPACK_HOST_FOLDER": str(tmp_path / "ledger"),
    }
    done = python_page.run(EXAMPLES[name], tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    # The warnings name lines of the caller, however deep in the package their cause is.
    callers = re.findall(r"^(\S+):\d+: SimulatedGpuWarning: ", done.stderr, re.MULTILINE)
    assert callers
    (package,) = importlib.util.find_spec("gpupack").submodule_search_locations
    assert not [each for each in callers if each.startswith(package + os.sep)]
    assert not list(tmp_path.glob("ledger/*.json"))


def test_the_documented_file_has_the_defaults():
    text = python_page.PAGE.partition("```yaml\n")[2].partition("```")[0]
    assert parse_config(yaml.safe_load(text)) == GpuConfig()
