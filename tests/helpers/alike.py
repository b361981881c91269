# SPDX-License-Identifier: Apache-2.0
"""Compares printed text whose numbers another processor may round otherwise in the last digit.

Words, marks and whole numbers must be the same. Numbers with decimals may differ by one unit of the
last decimal that is printed, and by `absolute` beyond it. Runs of blanks and of rules count as one,
since the width of a column follows its numbers. Versions (3.9.0) and names (job1) are words.
"""

import re
from itertools import zip_longest
from math import isclose

NUMBER = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\.?\d)")
FILLING = re.compile(r"[ \t]+|─+|-{3,}")
IDENTITY = re.compile(r'\bid="([^"]+)"')
PLACE = re.compile(r'(?<=\bid=")[^"]+|(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
SVG_COORDINATE = 1e-3
"""Points: such pictures look the same."""


def assert_alike(found, expected, *, absolute=0.0):
    """Line by line; the first line that differs is shown."""
    lines = zip_longest(_lines(found), _lines(expected))
    for number, (have, want) in enumerate(lines, start=1):
        assert have is not None, f"line {number} is missing: {want!r}"
        assert want is not None, f"line {number} is too much: {have!r}"
        assert _same(have, want, absolute), f"line {number}: found {have!r}, expected {want!r}"


def assert_same_picture(found, expected):
    """Compare two SVG files, with IDs by their order: matplotlib hashes coordinates for them."""
    assert_alike(_numbered(found), _numbered(expected), absolute=SVG_COORDINATE)


def _lines(text):
    return [FILLING.sub(_one, line.rstrip()) for line in text.splitlines()]


def _one(filling):
    return filling[0][0]


def _same(have, want, absolute):
    ours, theirs = NUMBER.split(have), NUMBER.split(want)
    if len(ours) != len(theirs) or ours[::2] != theirs[::2]:
        return False
    return all(_close(*pair, absolute) for pair in zip(ours[1::2], theirs[1::2], strict=True))


def _close(have, want, absolute):
    if "." not in have + want and not absolute:
        return have == want
    a, b = (float(text.replace(",", "")) for text in (have, want))
    # 1e-9: two decimals that differ by one unit differ by a little more in binary
    unit = max(_last_place(have), _last_place(want))
    return isclose(a, b, rel_tol=1e-9, abs_tol=unit * (1 + 1e-9) + absolute)


def _last_place(number):
    """One unit of the last decimal printed; 0 of a whole number."""
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if decimals else 0.0


def _numbered(svg):
    """Replace every ID, and each reference to it, by its number."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(IDENTITY.findall(svg)))}
    return PLACE.sub(lambda place: f"i{numbers.get(place[0], place[0])}", svg)
