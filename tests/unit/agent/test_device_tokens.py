# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent import device_tokens
from gpupack_crds import names

IDS = device_tokens.number_tokens("gpu", 8)


def test_device_tokens_are_numbered_and_not_uuids():
    assert device_tokens.number_tokens("gpu", 3) == ("gpu-0", "gpu-1", "gpu-2")


@given(st.sets(st.sampled_from(IDS)), st.integers(0, 8))
def test_held_tokens_stay_healthy_and_as_many_free_ones_are_unhealthy_as_gpus_failed(held, failed):
    graded = device_tokens.mark_unhealthy(IDS, held=held, unusable=failed)
    unhealthy = {token.id for token in graded if not token.healthy}
    assert [token.id for token in graded] == list(IDS)
    assert not unhealthy & held
    assert len(unhealthy) == min(failed, len(IDS) - len(held))


def test_a_held_failed_gpu_makes_no_device_token_unhealthy(build):
    devices = [build.device(0, health="Failed"), build.device(1, health="Failed")]
    assert device_tokens.count_unusable(devices, ["GPU-0"], tokens_per_gpu=1) == 1


def test_a_failed_gpu_makes_its_free_share_tokens_unhealthy(build):
    devices = [build.device(0, health="Failed"), build.device(1)]
    assert (
        device_tokens.count_unusable(devices, ["GPU-0", "GPU-0", "GPU-1"], tokens_per_gpu=20) == 18
    )


def test_more_holders_than_device_tokens_make_none_unhealthy(build):
    devices = [build.device(0, health="Failed")]
    assert device_tokens.count_unusable(devices, ["GPU-0", "GPU-0"], tokens_per_gpu=1) == 0


def test_slices_of_a_gpu_are_not_handed_out_as_gpus(build):
    whole, part = build.device(0), build.device(1, mig_parent="GPU-9", mig_profile="1g.18gb+me")
    assert device_tokens.devices_of([whole, part], names.GPU) == [whole]
    assert device_tokens.devices_of([whole, part], names.GPU_SHARE) == [whole]
    assert device_tokens.devices_of([whole, part], "gpupack.dev/mig-1g.18gb.me") == [part]
    assert device_tokens.devices_of([whole, part], "gpupack.dev/mig-1g.18gb") == []


@given(st.permutations(IDS))
def test_a_cdi_name_depends_on_the_set_alone(ids):
    assert device_tokens.cdi_name(ids) == device_tokens.cdi_name(IDS)


@given(st.sets(st.sampled_from(IDS), min_size=1), st.sets(st.sampled_from(IDS), min_size=1))
def test_different_sets_have_different_cdi_names(first, second):
    assert (device_tokens.cdi_name(first) == device_tokens.cdi_name(second)) == (first == second)
