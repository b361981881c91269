# SPDX-License-Identifier: Apache-2.0
"""Documents name files and make targets that exist."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
DOCUMENTS = sorted(
    path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
SECTION = re.compile(r"\]\(((?:[^)#: ]+\.md)?)#([^)]+)\)")
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
BLOCK = re.compile(r"^ *```(?:sh|console)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
PYTHONPATH = re.compile(r"PYTHONPATH=([\w./:-]+)")
POLICY = re.compile(r"^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (\S+)", re.MULTILINE)
OWN_PATH = re.compile(
    r"(?<![\w./-])((?:agent|apiserver|benchmarks|charts|client|crds|docs|examples|extender|hack|lib"
    r"|operator|simulator|tests|workloads)/[\w./-]+\w)"
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


def anchors(document):
    """Return the fragments that GitHub gives a document's headings, and those of its own."""
    counts = collections.Counter()
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r'<a id="([^"]+)"></a>', text)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain.strip()).replace(" ", "-")
        yield f"{slug}-{counts[slug]}" if counts[slug] else slug
        counts[slug] += 1


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_to_sections_lead_to_headings(document):
    path = ROOT / document
    broken = [
        f"{target}#{fragment}"
        for target, fragment in SECTION.findall(path.read_text())
        if fragment not in set(anchors((path.parent / target).resolve() if target else path))
    ]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_make_targets_that_a_document_names_exist(document):
    named = {a or b for a, b in TARGET.findall((ROOT / document).read_text())}
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_files_and_folders_that_a_command_names_exist(document):
    """Paths of the repository's own folders; the page about adding a policy names a new file."""
    text = (ROOT / document).read_text()
    code = "\n".join(BLOCK.findall(text) + INLINE.findall(text))
    named = [path for each in PYTHONPATH.findall(code) for path in each.split(":")]
    if document.parts[1:2] not in {("adr",), ("reports",)}:
        named += OWN_PATH.findall(code)
    missing = {path for path in named if not path.startswith(".dev") and not (ROOT / path).exists()}
    assert missing <= {"lib/placement/gpupack_placement/policies/smallest_node.py"}


def test_the_page_about_the_installation_names_every_admission_policy():
    templates = (ROOT / "charts" / "gpupack" / "templates").glob("**/*.yaml")
    policies = {name for path in templates for name in POLICY.findall(path.read_text())}
    text = (ROOT / "docs" / "install.md").read_text()
    assert "gpupack-checkpoints" in policies
    assert {name for name in policies if f"`{name}`" not in text} == set()


def test_every_decision_is_numbered_once_and_says_what_was_decided():
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert len(set(numbers)) == len(numbers)
    assert all("**Decision.**" in path.read_text() for path in records)


def test_docs_edges_names_every_edge_test_with_its_file():
    folder = ROOT / "tests" / "e2e" / "edges"
    named = set(EDGE.findall((ROOT / "docs" / "edges.md").read_text()))
    found = {
        (name, path.name)
        for path in folder.glob("test_*.py")
        for name in TEST.findall(path.read_text())
    }
    assert named == found


def test_every_attack_has_its_test_and_every_test_of_an_attack_its_row():
    """Rows may name tests of other files too; every test of these files has a row."""
    named = set(ATTACK.findall((ROOT / "docs" / "security.md").read_text()))
    missing = [
        (name, path)
        for name, path in named
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
    assert found <= named
