# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/packing.md."""

import importlib
import pathlib

import pytest
from alike import assert_same_picture

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def frontier(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("frontier")


def test_the_documents_picture_matches_the_table(frontier):
    table = (ROOT / frontier.DOCUMENT).read_text()
    assert_same_picture(frontier.drawn(table), (ROOT / frontier.PICTURE).read_text())
