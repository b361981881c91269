# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_terminal.screens import Size, decide_screen

TERMINAL = Size(100, 30)


@pytest.mark.parametrize(
    ("size", "environ", "colour", "live"),
    [
        (TERMINAL, {}, True, True),
        (TERMINAL, {"NO_COLOR": ""}, True, True),
        (TERMINAL, {"NO_COLOR": "1"}, False, True),
        (TERMINAL, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, True),
        (TERMINAL, {"CLICOLOR": "0"}, False, True),
        (TERMINAL, {"TERM": "dumb"}, False, False),
        (TERMINAL, {"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True, False),
        (None, {}, False, False),
        (None, {"CLICOLOR_FORCE": "1"}, True, False),
        (None, {"FORCE_COLOR": "1"}, True, False),
        (None, {"CLICOLOR_FORCE": "0"}, False, False),
    ],
)
def test_colours_and_live_pictures_are_as_the_environment_wants_them(size, environ, colour, live):
    found = decide_screen(size, "utf-8", environ)
    assert (found.colour, found.live) == (colour, live)


@pytest.mark.parametrize(
    ("size", "environ", "columns"),
    [
        (TERMINAL, {}, 100),
        (TERMINAL, {"COLUMNS": "60"}, 60),
        (TERMINAL, {"COLUMNS": "0"}, 100),
        (TERMINAL, {"COLUMNS": "wide"}, 100),
        (TERMINAL, {"COLUMNS": "9" * 40}, 100),
        (None, {}, None),
        (None, {"COLUMNS": "60"}, None),
    ],
)
def test_a_terminal_has_columns_and_a_pipe_has_none(size, environ, columns):
    assert decide_screen(size, "utf-8", environ).columns == columns


@pytest.mark.parametrize(
    ("size", "environ", "encoding"),
    [
        (TERMINAL, {}, "utf-8"),
        (TERMINAL, {"LANG": "de_DE.UTF-8"}, "utf-8"),
        (TERMINAL, {"LC_ALL": "C"}, "ascii"),
        (TERMINAL, {"LANG": "POSIX"}, "ascii"),
        (TERMINAL, {"LANG": "C", "LC_ALL": "C.UTF-8"}, "utf-8"),
        (TERMINAL, {"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, "utf-8"),
        (None, {"LC_ALL": "C"}, "utf-8"),
    ],
)
def test_a_terminal_of_a_plain_locale_gets_ascii(size, environ, encoding):
    assert decide_screen(size, "UTF-8", environ).encoding == encoding


def test_text_that_an_encoding_does_not_have_is_replaced_or_escaped():
    assert "█▄·… ü 日 \ud800".encode("ascii", "gpupack_terminal") == b"#+.~ \\xfc \\u65e5 \\ud800"
    assert "ü \ud800".encode("utf-8", "gpupack_terminal") == "ü \\ud800".encode()
