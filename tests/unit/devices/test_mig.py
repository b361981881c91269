# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_devices import mig
from gpupack_devices.errors import InvalidInventory

PROFILES = sorted({name for family in mig.FAMILIES for name in family.profiles})


@pytest.mark.parametrize(
    ("memory", "gigabytes"),
    [(24258, 24), (40536, 40), (81559, 80), (81920, 80), (97871, 96), (143771, 141)],
)
def test_a_family_is_known_by_what_a_driver_calls_its_memory(memory, gigabytes):
    assert mig.family_of(memory).gigabytes == gigabytes


def test_of_other_gpus_no_rules_are_known():
    assert mig.family_of(16384) is None
    with pytest.raises(InvalidInventory, match="no placement rules"):
        mig.layout(16384, ["1g.5gb"])


@pytest.mark.parametrize(
    ("profile", "most"),
    [
        *(("1g.18gb", 7), ("1g.18gb+me", 1), ("1g.35gb", 4), ("2g.35gb", 3)),
        *(("3g.71gb", 2), ("4g.71gb", 1), ("7g.141gb", 1)),
    ],
)
def test_there_are_as_many_of_a_profile_as_nvidias_table_says(profile, most):
    mig.layout(143771, [profile] * most)
    with pytest.raises(InvalidInventory, match="no slot is left"):
        mig.layout(143771, [profile] * (most + 1))


def test_slots_that_are_free_but_not_where_a_profile_may_begin_hold_none():
    cut = [mig.Slot("1g.18gb", start, 1) for start in (1, 2, 5)]
    assert mig.places(mig.family_of(143771), "2g.35gb", cut) == ()
    assert mig.places(mig.family_of(143771), "1g.18gb", cut) == (0, 3, 4, 6)


@given(st.lists(st.sampled_from(PROFILES), max_size=8), st.sampled_from(mig.FAMILIES))
def test_no_layout_has_two_slices_in_one_slot(profiles, family):
    try:
        cut = mig.layout(family.gigabytes * 1024, profiles)
    except InvalidInventory:
        return
    used = [slot for each in cut for slot in range(each.start, each.start + each.size)]
    assert len(used) == len(set(used))
    assert all(slot < family.slots for slot in used)
