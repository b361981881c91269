# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.mps.threads import NOTHING_KNOWN, SoundThreads, parse_sound_threads
from gpupack_agent.settings import LimitSettings
from gpupack_kube.environment import SettingsInvalid

SOUND = SoundThreads({"A": ((1, 13), (23, 27), (90, 100))})
percents = st.integers(1, 100)


@pytest.mark.parametrize(
    ("percent", "threads"), [(1, 1), (13, 13), (22, 13), (23, 23), (89, 27), (95, 95), (100, 100)]
)
def test_a_share_has_the_largest_sound_percentage_that_is_no_more_than_its_own(percent, threads):
    assert SOUND.at_most(percent, "A") == threads


@given(percents)
def test_no_share_has_more_than_its_own_and_what_it_has_is_sound(percent):
    threads = SOUND.at_most(percent, "A")
    assert 1 <= threads <= percent
    assert any(first <= threads <= last for first, last in SOUND.ranges["A"])


def test_of_a_model_of_which_nothing_is_known_shares_have_their_own():
    assert SOUND.at_most(30, "B") == NOTHING_KNOWN.at_most(30, "A") == 30


def test_less_than_the_least_sound_percentage_is_as_it_is():
    assert SoundThreads({"A": ((10, 20),)}).at_most(5, "A") == 5


def test_what_the_chart_says_is_read():
    text = '{"A": [[1, 13], [23, 27], [90, 100]], "B": []}'
    found = LimitSettings.from_environ({"GPUPACK_SOUND_THREADS": text}).sound_threads
    assert found.ranges["A"] == SOUND.ranges["A"]
    assert found.at_most(30, "B") == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "truncated"),
        ('{"A": [[0, 5]]}', ">= 1"),
        ('{"A": [[5, 101]]}', "<= 100"),
        ('{"A": [[5]]}', "length 2"),
        ('{"A": [[9, 5]]}', "do not ascend"),
        ('{"A": [[5, 9], [7, 12]]}', "ranges of A do not ascend"),
    ],
)
def test_what_is_no_list_of_ranges_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=said):
        parse_sound_threads(text)
    with pytest.raises(SettingsInvalid, match="GPUPACK_SOUND_THREADS is not valid"):
        LimitSettings.from_environ({"GPUPACK_SOUND_THREADS": text})
