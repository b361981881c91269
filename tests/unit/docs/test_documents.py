# SPDX-License-Identifier: Apache-2.0
"""Documents name files and make targets that exist."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
DOCUMENTS = sorted(
    path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
TARGET = re.compile(r"`make ([a-z0-9-]+)|^make ([a-z0-9-]+)", re.MULTILINE)
TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
EDGE = re.compile(r"\[`(test_\w+)`\]\(\.\./tests/e2e/edges/(\w+\.py)\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_of_a_document_lead_somewhere(document):
    folder = (ROOT / document).parent
    broken = [
        link
        for link in LINK.findall((ROOT / document).read_text())
        if not (folder / link).resolve().exists()
    ]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_make_targets_that_a_document_names_exist(document):
    named = {a or b for a, b in TARGET.findall((ROOT / document).read_text())}
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_every_decision_is_numbered_once_and_says_what_was_decided():
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert numbers == list(range(1, len(records) + 1))
    assert all("**Decision.**" in path.read_text() for path in records)


def test_every_test_of_an_edge_is_told_of_and_stands_where_its_row_says():
    folder = ROOT / "tests" / "e2e" / "edges"
    told = set(EDGE.findall((ROOT / "docs" / "edges.md").read_text()))
    found = {
        (name, path.name)
        for path in folder.glob("test_*.py")
        for name in TEST.findall(path.read_text())
    }
    assert told == found
