# SPDX-License-Identifier: Apache-2.0
"""The list of components in pyproject.toml, and the tools that need it in their own form."""

import configparser
import pathlib
import subprocess
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
MEMBERS = PROJECT["gpupack"]["components"]


def package(member):
    """Return the import package of a component."""
    return "gpupack" if member == "client" else f"gpupack_{member.rpartition('/')[2]}"


def linted():
    """Return the packages whose imports are checked."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return set(parser["importlinter"]["root_packages"].split())


def test_every_folder_with_a_project_file_is_a_component():
    listed = subprocess.run(
        ["git", "ls-files", "*/pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    folders = {str(pathlib.PurePath(path).parent) for path in listed}
    # Its package `backend` belongs to another project as well.
    assert folders - {"client/compat"} == set(MEMBERS)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_component_is_checked_by_every_tool(member):
    folder = f"{member}/{package(member)}"
    assert (ROOT / folder).is_dir()
    assert member in PROJECT["ruff"]["src"]
    assert member in PROJECT["mypy"]["mypy_path"].split(":")
    assert folder in PROJECT["mypy"]["files"]
    assert member in PROJECT["pytest"]["ini_options"]["pythonpath"]
    assert package(member) in linted()


def test_make_installs_the_components():
    shown = subprocess.run(
        ["make", "--no-print-directory", "-f", "-", "show"],
        input="include Makefile\nshow:\n\t@echo $(COMPONENTS)\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert shown == MEMBERS
