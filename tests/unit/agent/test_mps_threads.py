# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.mps.threads import (
    NO_THREAD_PERCENTAGES,
    ThreadPercentages,
    parse_thread_percentages,
)
from gpupack_agent.settings import LimitSettings
from gpupack_kubeclient.environment import SettingsInvalid

SOUND = ThreadPercentages({"A": ((1, 13), (23, 27), (90, 100))})
percents = st.integers(1, 100)


@pytest.mark.parametrize(
    ("percent", "threads"), [(1, 1), (13, 13), (22, 13), (23, 23), (89, 27), (95, 95), (100, 100)]
)
def test_a_share_has_the_largest_sound_percentage_that_is_no_more_than_its_own(percent, threads):
    assert SOUND.up_to(percent, "A") == threads


@given(percents)
def test_no_share_has_more_than_its_own_and_what_it_has_is_sound(percent):
    threads = SOUND.up_to(percent, "A")
    assert 1 <= threads <= percent
    assert any(first <= threads <= last for first, last in SOUND.ranges["A"])


def test_shares_of_an_unmeasured_model_keep_their_percentage():
    assert SOUND.up_to(30, "B") == NO_THREAD_PERCENTAGES.up_to(30, "A") == 30


def test_a_share_below_the_least_sound_percentage_keeps_its_own():
    assert ThreadPercentages({"A": ((10, 20),)}).up_to(5, "A") == 5


def test_the_charts_ranges_are_parsed():
    text = '{"A": [[1, 13], [23, 27], [90, 100]], "B": []}'
    found = LimitSettings.from_environ(
        {"GPUPACK_CORRECT_THREAD_PERCENTAGES": text}
    ).thread_percentages
    assert found.ranges["A"] == SOUND.ranges["A"]
    assert found.up_to(30, "B") == 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "truncated"),
        ('{"A": [[0, 5]]}', ">= 1"),
        ('{"A": [[5, 101]]}', "<= 100"),
        ('{"A": [[5]]}', "length 2"),
        ('{"A": [[9, 5]]}', "do not ascend"),
        ('{"A": [[5, 9], [7, 12]]}', "ranges of A do not ascend"),
    ],
)
def test_invalid_ranges_are_refused_with_the_reason(text, expected):
    with pytest.raises(ValueError, match=expected):
        parse_thread_percentages(text)
    with pytest.raises(SettingsInvalid, match="GPUPACK_CORRECT_THREAD_PERCENTAGES is not valid"):
        LimitSettings.from_environ({"GPUPACK_CORRECT_THREAD_PERCENTAGES": text})
