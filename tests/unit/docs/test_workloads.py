# SPDX-License-Identifier: Apache-2.0
"""Every workload is described, and nothing else is."""

import pathlib
import re

import pytest

from gpupack_workloads import commands

ROOT = pathlib.Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "workloads.md").read_text()
IN_TABLE = re.compile(r"^\| \[`([a-z0-9-]+)`\]\(#([a-z0-9-]+)\) \|", re.MULTILINE)
EVERY = sorted([*commands.names(), *commands.OF_OWN_IMAGES])
SECTION = re.compile(r"^## ([a-z0-9-]+)$", re.MULTILINE)


def test_the_list_of_workloads_is_that_of_the_command_line():
    listed = IN_TABLE.findall(DOCUMENT)
    assert sorted(name for name, _ in listed) == EVERY
    assert all(name == anchor for name, anchor in listed)


def test_every_workload_has_a_section():
    assert sorted(SECTION.findall(DOCUMENT)) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_a_section_names_every_option_that_its_workload_has_of_its_own(name):
    everybodys = {"seed", "as_json", "require_gpu"}
    section = DOCUMENT.split(f"\n## {name}\n", 1)[-1].split("\n## ", 1)[0]
    options = [
        option.opts[-1]
        for option in commands.load(name).params
        if option.name not in everybodys and option.opts[-1].startswith("--")
    ]
    assert [option for option in options if option not in section] == []
