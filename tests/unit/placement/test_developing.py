# SPDX-License-Identifier: Apache-2.0
"""The worked example of docs/developing.md runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECTION = re.compile(r"^## A new placement policy$(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def example():
    text = SECTION.search((ROOT / "docs/developing.md").read_text())[1]
    names = {}
    for block in BLOCK.findall(text):
        exec(compile(block, "docs/developing.md", "exec"), names)
    return names


def test_the_worked_example_of_a_policy_passes_its_own_test(example):
    tests = [run for name, run in example.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_its_line_fits_the_table(example):
    policy = example["SmallestNode"]()
    assert policy.name == "smallest-node"
    assert policy.informed(None) is policy
