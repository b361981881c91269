# SPDX-License-Identifier: Apache-2.0
"""Sanitizing of untrusted text for a terminal.

Users write names, reasons and messages of objects, and lines of logs. A terminal executes escape
sequences: they can hide lines, rename its window, or type for its user.
"""

import re

_SEQUENCE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_](?:[^\x07\x1b\x9c]|\x1b(?!\\))*(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # all others of two characters and more
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_SEQUENCES = re.compile(_SEQUENCE)
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"  # order and width of others
    "\U000e0000-\U000e007f\ud800-\udfff]"  # tags; halves of characters
)


def plain(text: str) -> str:
    """Return one line without escape, control and bidirectional characters.

    Line breaks and tabs become spaces.
    """
    if text.isascii() and text.isprintable():
        return text.strip()
    spaced = re.sub(r"[\t\r\n]+", " ", _SEQUENCES.sub("", text))
    return _CONTROLS.sub("", spaced).strip()


def coloured(line: str) -> str:
    """Return a log line for a terminal: with colours and tabs, without any other sequences.

    Its colours end with the line.
    """
    kept, position = list[str](), 0
    found = False
    for match in _SEQUENCES.finditer(line):
        kept.append(_tabbed(line[position : match.start()]))
        if _COLOUR.fullmatch(match[0]):
            kept.append(match[0])
            found = True
        position = match.end()
    kept.append(_tabbed(line[position:]))
    return "".join(kept) + ("\x1b[0m" if found else "")


def uncoloured(line: str) -> str:
    """Return a log line for a terminal without colours; tabs are kept."""
    return _tabbed(_SEQUENCES.sub("", line))


def _tabbed(text: str) -> str:
    """Return the text that remains after a progress bar overwrote the line."""
    last = text.rstrip("\r").rpartition("\r")[2]
    return "\t".join(_CONTROLS.sub("", part) for part in last.split("\t"))
