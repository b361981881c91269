# SPDX-License-Identifier: Apache-2.0
import json
import time

import pytest
import yaml

from gpupack_cli import output
from gpupack_cli.options import Output
from gpupack_cli.output import Column

COLUMNS = (
    Column("name"),
    Column("gpus", right=True),
    Column("nodes", min_width=120),
    Column("uid", wide=True),
    Column("message", min_width=100, rest=True),
)
ROWS = [("a-job", 8, "gpu-1", "u-1", "x" * 300), ("[red]markup[/red]", 1, "", "u-2", ":smile:")]


def lines(width, chosen=Output.TABLE, columns=COLUMNS, rows=ROWS):
    return [line.plain for line in output.table(columns, rows, output=chosen, width=width)]


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_each_row_is_one_line_that_fits(width):
    assert len(lines(width)) == 1 + len(ROWS)
    assert max(map(len, lines(width))) <= width


def test_a_narrow_terminal_shows_fewer_columns():
    assert lines(80)[0].split() == ["NAME", "GPUS"]
    assert lines(110)[0].split() == ["NAME", "GPUS", "MESSAGE"]
    assert lines(200)[0].split() == ["NAME", "GPUS", "NODES", "MESSAGE"]


def test_a_wide_table_shows_all_columns_uncut():
    heading, row, _ = lines(20, Output.WIDE)
    assert heading.split() == ["NAME", "GPUS", "NODES", "UID", "MESSAGE"]
    assert row.endswith("x" * 300)


def test_names_are_not_parsed_as_markup():
    assert "[red]markup[/red]" in "\n".join(lines(200))
    assert ":smile:" in "\n".join(lines(200))


def test_lines_in_a_pipe_are_uncut_without_trailing_spaces(capsys):
    output.show_table(COLUMNS, ROWS, Output.TABLE)
    shown = capsys.readouterr().out.splitlines()
    assert "x" * 300 in shown[1]
    assert [line.rstrip() for line in shown] == shown


def test_documents_escape_control_characters(capsys):
    for chosen, load in ((Output.JSON, json.loads), (Output.YAML, yaml.safe_load)):
        output.show_document({"name": "\x1b[2J\x9b1m\u202eü"}, chosen)
        shown = capsys.readouterr().out
        assert shown.isascii()
        assert "\x1b" not in shown
        assert load(shown) == {"name": "\x1b[2J\x9b1m\u202eü"}


def test_long_names_are_not_cut():
    columns = (Column("namespace"), Column("gpus", right=True), Column("message", rest=True))
    shown = lines(40, columns=columns, rows=[("n" * 60, 1024, "m" * 60), ("short", 1, "")])
    assert shown[0].split() == ["NAMESPACE", "GPUS", "MESSAGE"]
    assert shown[1].split() == ["n" * 60, "1024", "m" * 11 + "…"]
    assert shown[2] == f"{'short':60}     1"


def test_twenty_thousand_rows_are_printed_in_seconds(capsys):
    rows = [(f"job-{index}", 8, "gpu-1", "u-1", "no room; " * 20) for index in range(20_000)]
    begun = time.process_time()
    output.show_table(COLUMNS, rows, Output.TABLE)
    assert time.process_time() - begun < 5.0  # it took 17 s when rich printed each line
    assert len(capsys.readouterr().out.splitlines()) == 20_001


def test_colours_are_those_that_rich_writes(capsys, monkeypatch):
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    output.show_table(
        (Column("name"), Column("phase")), [("a", "Running"), ("b", "")], Output.TABLE
    )
    assert capsys.readouterr().out.splitlines() == [
        "\x1b[1mNAME\x1b[0m  \x1b[1mPHASE\x1b[0m",
        "a     \x1b[32mRunning\x1b[0m",
        "b",
    ]
