# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent import tickets
from gpupack_crds import names

IDS = tickets.issue("gpu", 8)


def test_tickets_are_numbered_and_not_uuids():
    assert tickets.issue("gpu", 3) == ("gpu-0", "gpu-1", "gpu-2")


@given(st.sets(st.sampled_from(IDS)), st.integers(0, 8))
def test_held_tickets_stay_healthy_and_as_many_free_ones_go_as_gpus_failed(held, failed):
    graded = tickets.grade(IDS, held=held, unusable=failed)
    unhealthy = {ticket.id for ticket in graded if not ticket.healthy}
    assert [ticket.id for ticket in graded] == list(IDS)
    assert not unhealthy & held
    assert len(unhealthy) == min(failed, len(IDS) - len(held))


def test_a_failed_gpu_that_somebody_holds_takes_no_ticket_away(build):
    devices = [build.device(0, health="Failed"), build.device(1, health="Failed")]
    assert tickets.unusable(devices, ["GPU-0"], tickets_per_gpu=1) == 1


def test_a_failed_gpu_takes_the_slots_away_that_nobody_holds(build):
    devices = [build.device(0, health="Failed"), build.device(1)]
    assert tickets.unusable(devices, ["GPU-0", "GPU-0", "GPU-1"], tickets_per_gpu=20) == 18


def test_more_holders_than_tickets_take_nothing_away(build):
    devices = [build.device(0, health="Failed")]
    assert tickets.unusable(devices, ["GPU-0", "GPU-0"], tickets_per_gpu=1) == 0


def test_slices_of_a_gpu_are_not_handed_out_as_gpus(build):
    whole, part = build.device(0), build.device(1, mig_parent="GPU-9", mig_profile="1g.18gb+me")
    assert tickets.handed_out([whole, part], names.GPU) == [whole]
    assert tickets.handed_out([whole, part], names.GPU_SHARE) == [whole]
    assert tickets.handed_out([whole, part], "gpupack.dev/mig-1g.18gb.me") == [part]
    assert tickets.handed_out([whole, part], "gpupack.dev/mig-1g.18gb") == []


@given(st.permutations(IDS))
def test_a_cdi_name_depends_on_the_set_alone(ids):
    assert tickets.cdi_name(ids) == tickets.cdi_name(IDS)


@given(st.sets(st.sampled_from(IDS), min_size=1), st.sets(st.sampled_from(IDS), min_size=1))
def test_different_sets_have_different_cdi_names(first, second):
    assert (tickets.cdi_name(first) == tickets.cdi_name(second)) == (first == second)
