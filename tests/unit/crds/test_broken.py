# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_crds.broken import Break, to_avoid

BROKE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def later(seconds):
    return BROKE + dt.timedelta(seconds=seconds)


def test_a_node_is_avoided_for_so_many_seconds_and_named_once():
    breaks = [Break("b", "WorkerFailed", later(5)), Break("a", "", BROKE), Break("b", "", BROKE)]
    assert to_avoid(breaks, later(599), 600) == ("b", "a")
    assert to_avoid(breaks, later(600), 600) == ("b",)
    assert to_avoid(breaks, later(605), 600) == ()


@pytest.mark.parametrize(
    "reason", ["OutOfMemory", "PodDeleted", "EvictionByEvictionAPI", "PreemptionByScheduler"]
)
def test_a_node_without_a_fault_is_not_avoided(reason):
    assert to_avoid([Break("a", reason, BROKE)], BROKE, 600) == ()
