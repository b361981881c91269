# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import yaml
from rich.console import Console

from gpupack_cli import output
from gpupack_cli.options import Output
from gpupack_cli.output import Column

COLUMNS = (
    Column("name"),
    Column("gpus", right=True),
    Column("nodes", least_width=120),
    Column("uid", wide=True),
    Column("message", least_width=100, rest=True),
)
ROWS = [("a-job", 8, "gpu-1", "u-1", "x" * 300), ("[red]markup[/red]", 1, "", "u-2", ":smile:")]


def lines(width, chosen=Output.TABLE):
    screen = Console(width=width, markup=False, highlight=False, emoji=False, no_color=True)
    with screen.capture() as captured:
        screen.print(output.table(COLUMNS, ROWS, output=chosen, width=width))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 200])
def test_each_row_is_one_line_that_fits(width):
    assert len(lines(width)) == 1 + len(ROWS)
    assert max(map(len, lines(width))) <= width


def test_a_narrow_terminal_has_the_important_columns_and_a_wide_one_more():
    assert lines(80)[0].split() == ["NAME", "GPUS"]
    assert lines(110)[0].split() == ["NAME", "GPUS", "MESSAGE"]
    assert lines(200)[0].split() == ["NAME", "GPUS", "NODES", "MESSAGE"]
    assert lines(400, Output.WIDE)[0].split() == ["NAME", "GPUS", "NODES", "UID", "MESSAGE"]


def test_names_are_no_markup():
    assert "[red]markup[/red]" in "\n".join(lines(200))
    assert ":smile:" in "\n".join(lines(200))


def test_in_a_pipe_lines_are_whole_and_have_no_spaces_at_their_end(capsys):
    output.show_table(COLUMNS, ROWS, Output.TABLE)
    shown = capsys.readouterr().out.splitlines()
    assert "x" * 300 in shown[1]
    assert [line.rstrip() for line in shown] == shown


def test_documents_escape_what_a_terminal_would_obey(capsys):
    for chosen, load in ((Output.JSON, json.loads), (Output.YAML, yaml.safe_load)):
        output.show_document({"name": "\x1b[2J\x9b1m\u202eü"}, chosen)
        shown = capsys.readouterr().out
        assert shown.isascii()
        assert "\x1b" not in shown
        assert load(shown) == {"name": "\x1b[2J\x9b1m\u202eü"}


def test_of_long_names_and_numbers_the_names_are_cut():
    columns = (
        output.Column("namespace"),
        output.Column("name"),
        output.Column("gpus", right=True),
        output.Column("age", right=True),
    )
    built = output.table(
        columns, [("n" * 60, "short", 1024, "21m")], output=output.Output.TABLE, width=60
    )
    screen = Console(width=60, no_color=True)
    with screen.capture() as captured:
        screen.print(built)
    heading, row = captured.get().splitlines()
    assert heading.split() == ["NAMESPACE", "NAME", "GPUS", "AGE"]
    assert row.split()[1:] == ["short", "1024", "21m"]
