# SPDX-License-Identifier: Apache-2.0
"""Every workload is described, and nothing else is."""

import pathlib
import re

import pytest

from gpupack_workloads import commands

ROOT = pathlib.Path(__file__).parents[3]
PAGES = {path.name: path.read_text() for path in (ROOT / "docs" / "workloads").glob("*.md")}
IN_TABLE = re.compile(r"^\| \[`([a-z0-9-]+)`\]\(([a-z-]+\.md)#([a-z0-9-]+)\) \|", re.MULTILINE)
EVERY = sorted([*commands.names(), *commands.OF_OWN_IMAGES])
SECTION = re.compile(r"^## ([a-z0-9-]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = {
    name: (page, text) for page, whole in PAGES.items() for name, text in SECTION.findall(whole)
}


def test_the_list_of_workloads_is_that_of_the_command_line():
    listed = IN_TABLE.findall(PAGES["README.md"])
    assert sorted(name for name, _, _ in listed) == EVERY
    assert all(name == anchor for name, _, anchor in listed)


def test_every_workload_has_a_section_on_the_page_that_the_index_names():
    listed = {name: page for name, page, _ in IN_TABLE.findall(PAGES["README.md"])}
    assert {name: page for name, (page, _) in SECTIONS.items()} == listed


@pytest.mark.parametrize("name", EVERY)
def test_a_section_names_every_own_option_of_its_workload(name):
    everybodys = {"seed", "as_json", "require_gpu"}
    _, section = SECTIONS[name]
    options = [
        option.opts[-1]
        for option in commands.load(name).params
        if option.name not in everybodys and option.opts[-1].startswith("--")
    ]
    assert [option for option in options if option not in section] == []
