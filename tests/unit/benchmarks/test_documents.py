# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def documents(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("documents")


def test_a_table_has_a_line_below_its_head_and_one_for_each_row(documents):
    found = documents.table(("a", "b"), [("1", "2")])
    assert found == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


@pytest.mark.parametrize("gap", ["", "\n"], ids=["close", "apart"])
@pytest.mark.parametrize("how", ["", ": made by `make x`"], ids=["bare", "how"])
def test_a_table_is_replaced_and_the_text_around_it_stays(documents, how, gap):
    text = f"x\n<!-- a{how} -->\n{gap}{{}}\n{gap}<!-- end of a -->\ny\n<!-- a-b -->\n"
    found = documents.replaced(text.format("old"), "a", "| 1\\g<0> |\n")
    assert found == text.format("| 1\\g<0> |")


@pytest.mark.parametrize("times", [0, 2])
def test_a_document_without_a_single_place_for_a_table_is_refused(documents, times):
    with pytest.raises(ValueError, match="no single place for the table 'bars'"):
        documents.replaced("<!-- bars -->\n<!-- end of bars -->\n" * times, "bars", "")
