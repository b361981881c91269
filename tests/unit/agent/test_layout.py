# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.errors import LayoutInvalid
from gpupack_agent.inventory.layout import Profile, place_slices
from gpupack_devices import mig
from gpupack_devices.errors import InvalidInventory
from gpupack_devices.units import MiB

MIB_PER_GIB = 1024


def profiles(family):
    return {
        name: Profile(number=number, size=rule.size, starts=rule.starts, max_count=rule.most)
        for number, (name, rule) in enumerate(family.profiles.items())
    }


H200 = profiles(mig.FAMILIES[-1])


def test_each_slice_gets_a_place_where_its_profile_may_be():
    found = {
        (each.profile, each.start, each.size) for each in place_slices(H200, ["3g.71gb", "1g.18gb"])
    }
    assert found == {("3g.71gb", 0, 4), ("1g.18gb", 4, 1)}


@pytest.mark.parametrize(
    "wanted",
    [
        # A driver that puts each at its first place in this order has none left for the last.
        ["1g.18gb", "4g.71gb", "3g.71gb"][1:],
        ["1g.18gb", "1g.18gb", "1g.18gb", "4g.71gb"],
        ["2g.35gb", "1g.18gb", "1g.35gb", "2g.35gb"],
        ["1g.18gb+me", *["1g.18gb"] * 6],
        [],
    ],
)
def test_the_order_of_the_profiles_does_not_matter(wanted):
    assert sorted(each.profile for each in place_slices(H200, wanted)) == sorted(wanted)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (["1g.5gb"], "the GPU has no MIG profile 1g.5gb; it has 1g.18gb, 1g.18gb\\+me"),
        (["1g.18gb+me"] * 2, "2 slices 1g.18gb\\+me are requested; the maximum is 1"),
        (["3g.71gb"] * 3, "too few memory slots for 3g.71gb, 3g.71gb, 3g.71gb together"),
        (["7g.141gb", "1g.18gb"], "too few memory slots for 7g.141gb, 1g.18gb together"),
    ],
)
def test_an_impossible_layout_is_refused_with_the_reason(wanted, text):
    with pytest.raises(LayoutInvalid, match=text):
        place_slices(H200, wanted)


@given(st.data())
def test_a_layout_that_some_order_allows_is_found_and_breaks_no_rule(data):
    family = data.draw(st.sampled_from(mig.FAMILIES))
    wanted = data.draw(st.lists(st.sampled_from(sorted(family.profiles)), max_size=8))
    try:
        found = place_slices(profiles(family), wanted)
    except LayoutInvalid:
        with pytest.raises(InvalidInventory):
            mig.layout(MiB(family.gigabytes * MIB_PER_GIB), wanted)
        return
    slots = [slot for each in found for slot in range(each.start, each.start + each.size)]
    assert len(slots) == len(set(slots))
    assert sorted(each.profile for each in found) == sorted(wanted)
    for each in found:
        rule = family.profiles[each.profile]
        assert each.start in rule.starts
        assert each.size == rule.size
