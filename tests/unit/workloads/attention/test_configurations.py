# SPDX-License-Identifier: Apache-2.0
"""What was tuned per device."""

import itertools

import pytest

from gpupack_workloads.kernels.attention.configurations import BY_DEVICE, Case, configuration_for

CASES = [Case(*case) for case in itertools.product((64, 128), (False, True))]


@pytest.mark.parametrize("device", BY_DEVICE)
def test_a_tuned_device_has_every_case(device):
    assert set(BY_DEVICE[device]) == set(CASES)


def test_an_unknown_device_takes_what_was_found_on_the_h200():
    for case in CASES:
        assert configuration_for("NVIDIA H100 PCIe", case) == BY_DEVICE["NVIDIA H200"][case]
