# SPDX-License-Identifier: Apache-2.0
"""The comparison of printed numbers must fail where it should."""

import pytest
from alike import assert_alike, assert_same_picture

SVG = (
    '<clipPath id="p{id}">\n<rect x="{x}" width="864pt"/>\n</clipPath>\n'
    '<g id="figure_1" clip-path="url(#p{id})"><use xlink:href="#p{id}"/></g>\n'
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("wait 1.24 steps", "wait 1.25 steps"),
        ("total 999.99 |", "total 1,000.00 |"),
        ("  9.99  best", " 10.00 best"),
        ("─────", "──────"),
        ("1.50e-3", "1.51e-3"),
        ("-0.00 ± 0.00", "+0.00 ± 0.00"),
    ],
)
def test_a_last_digit_and_what_follows_from_it_may_differ(found, expected):
    assert_alike(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("wait 1.23 steps", "wait 1.25 steps"),
        ("wait 1.25 steps", "wait 1.25 hours"),
        ("7 jobs", "8 jobs"),
        ("job1", "job2"),
        ("torch 3.9.0", "torch 3.9.1"),
        ("1.25*", "1.25"),
        ("one\ntwo", "one"),
        ("one", "one\ntwo"),
        ("1.25 1.25", "1.25"),
    ],
)
def test_other_differences_fail_the_comparison(found, expected):
    with pytest.raises(AssertionError):
        assert_alike(found, expected)


def test_a_picture_drawn_by_another_processor_is_the_same_picture():
    ours, theirs = (
        SVG.format(id="8fb012ca75", x="275.233162"),
        SVG.format(id="10aa75de01", x="275.233163"),
    )
    assert_same_picture(ours, theirs)


@pytest.mark.parametrize("x", ["275.243", "276"])
def test_a_picture_of_other_figures_is_another_picture(x):
    with pytest.raises(AssertionError):
        assert_same_picture(SVG.format(id="a1", x="275.233162"), SVG.format(id="a1", x=x))


def test_a_picture_that_refers_to_another_shape_is_another_picture():
    two = '<a id="pa"/><a id="pb"/><use href="#{}"/>'
    with pytest.raises(AssertionError):
        assert_same_picture(two.format("pa"), two.format("pb"))
