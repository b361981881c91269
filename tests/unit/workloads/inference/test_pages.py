# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gpupack_workloads.inference_server.pages import SPARE, Pages, pages_for

COUNT = 20


class Holders(RuleBasedStateMachine):
    """Random allocations: no page has two holders and none is lost."""

    held = Bundle("held")

    def __init__(self):
        super().__init__()
        self.pages, self.holders = Pages(COUNT), []

    @rule(target=held, number=st.integers(0, COUNT + 1))
    def take(self, number):
        free = self.pages.free
        taken = self.pages.take(number)
        assert (taken is None) == (number > free)
        if taken is not None:
            assert len(taken) == number
            self.holders.append(taken)
        return taken

    @rule(taken=st.runner().flatmap(lambda self: st.sampled_from(self.holders or [None])))
    def give_back(self, taken):
        if taken is not None:
            self.holders.remove(taken)
            self.pages.give_back(taken)

    @invariant()
    def every_page_is_free_or_has_one_holder(self):
        held = [page for taken in self.holders for page in taken]
        assert len(set(held)) == len(held)
        assert SPARE not in held
        assert set(held) <= set(range(1, COUNT + 1))
        assert self.pages.free == COUNT - len(held)


TestHolders = Holders.TestCase


def test_a_free_page_cannot_be_released():
    pages = Pages(3)
    taken = pages.take(2)
    pages.give_back(taken)
    for wrong in (taken, (3,), (SPARE,)):
        with pytest.raises(ValueError, match="not all held"):
            pages.give_back(wrong)
    assert pages.free == 3


def test_a_page_named_twice_is_refused_and_stays_held():
    pages = Pages(3)
    (page,) = pages.take(1)
    with pytest.raises(ValueError, match="not all held"):
        pages.give_back((page, page))
    assert pages.free == 2


@given(st.integers(0, 10_000), st.integers(1, 256))
def test_pages_hold_all_positions_and_none_is_too_many(positions, page_tokens):
    number = pages_for(positions, page_tokens)
    assert (
        number * page_tokens >= positions > (number - 1) * page_tokens or positions == number == 0
    )
