# SPDX-License-Identifier: Apache-2.0
"""Tuned configurations of devices."""

import itertools

import pytest

from gpupack_kernels.operators.attention.tuning import BY_DEVICE, TuningKey, configuration_for

CASES = [TuningKey(*key) for key in itertools.product((64, 128), (False, True))]


@pytest.mark.parametrize("device", BY_DEVICE)
def test_a_tuned_device_has_a_configuration_for_every_case(device):
    assert set(BY_DEVICE[device]) == set(CASES)


def test_an_unknown_device_uses_the_configurations_of_the_h200():
    for key in CASES:
        assert configuration_for("NVIDIA H100 PCIe", key) == BY_DEVICE["NVIDIA H200"][key]
