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
ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TARGET = re.compile(r"`make ([a-z0-9-]+)|^make ([a-z0-9-]+)", re.MULTILINE)
TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
ATTACK = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
ABOUT_ATTACKS = (
    "admission_*",
    "large_objects",
    "pod_admission",
    "pod_security",
    "rbac",
    "security",
)
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


def headings(page):
    """Return the anchors that the web page of a document has."""
    names = (re.sub(r"[^\w -]", "", name.lower()) for name in HEADING.findall(page.read_text()))
    return {name.replace(" ", "-") for name in names}


def test_links_to_a_section_of_the_workloads_pages_lead_to_its_heading():
    found = [
        (str(document), page, anchor)
        for document in DOCUMENTS
        for name, anchor in ANCHOR.findall((ROOT / document).read_text())
        if (page := (ROOT / document).parent.joinpath(name).resolve() if name else ROOT / document)
        and page.is_relative_to(ROOT / "docs" / "workloads")
    ]
    assert found
    assert [link for link in found if link[2] not in headings(link[1])] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_make_targets_that_a_document_names_exist(document):
    named = {a or b for a, b in TARGET.findall((ROOT / document).read_text())}
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_every_decision_is_numbered_once_and_says_what_was_decided():
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert len(set(numbers)) == len(numbers)
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


def test_every_attack_has_its_test_and_every_test_of_an_attack_its_row():
    """Rows may name tests of other files too; those of these files are all told of."""
    told = set(ATTACK.findall((ROOT / "docs" / "security.md").read_text()))
    missing = [
        (name, path)
        for name, path in told
        if name not in TEST.findall((ROOT / path).read_text() if (ROOT / path).exists() else "")
    ]
    assert missing == []
    files = [
        path
        for about in ABOUT_ATTACKS
        for path in (ROOT / "tests" / "e2e").glob(f"test_{about}.py")
    ]
    found = {
        (name, str(path.relative_to(ROOT)))
        for path in files
        for name in TEST.findall(path.read_text())
    }
    assert found <= told
