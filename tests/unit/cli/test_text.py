# SPDX-License-Identifier: Apache-2.0
"""Untrusted text cannot control a user's terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_cli.text import coloured, plain

COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", "plain"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("never ended \x1b]52;c;cm0gLXJmIC8=", "never ended"),
        ("\x9b2Jcleared", "2Jcleared"),
        ("\x1b\x1b[0m[31mnested", "[31mnested"),
        ("one\ntwo\r\nthree\tfour", "one two three four"),
        ("back\x08\x08\x08space", "backspace"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\u061cgnp.exe", "gnp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("half \ud800 a character", "half  a character"),
        ("ünïcode → 日本", "ünïcode → 日本"),
    ],
)
def test_a_name_is_shown_as_one_printable_line(written, shown):
    assert plain(written) == shown


@given(st.text(st.characters(codec=None), max_size=200))
def test_no_text_keeps_control_sequences(text):
    assert not COMMANDS.search(plain(text))
    assert "\n" not in plain(text)


def test_a_log_keeps_only_its_colours():
    line = "\x1b[1;32mok\x1b[0m\t\x1b[2J\x1b]0;owned\x07\x1b[5Adone"
    assert coloured(line) == "\x1b[1;32mok\x1b[0m\tdone\x1b[0m"


def test_the_last_state_of_a_progress_bar_is_shown():
    assert coloured("10%\r50%\r100%\r") == "100%"


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_line_of_a_log_keeps_only_colour_sequences(text):
    without = re.sub(r"\x1b\[[0-9;:]*m", "", coloured(text))
    assert not COMMANDS.search(without)
