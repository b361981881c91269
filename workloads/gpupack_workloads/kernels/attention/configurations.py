# SPDX-License-Identifier: Apache-2.0
"""What was tuned on each device, so that no run has to search.

A device that is not here takes what was found on the one that is most like it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How the Hopper kernels run.

    Attributes:
        forward_stages: tiles of K and of V in shared memory at a time.
        backward_stages: tiles of Q and of dO in shared memory at a time.
        backward_stagger: how many tiles of queries later each next program starts.
    """

    forward_stages: int
    backward_stages: int
    backward_stagger: int


@dataclass(frozen=True)
class Case:
    """What a configuration was tuned for."""

    dimension: int
    causal: bool


H200 = {
    Case(128, causal=False): Configuration(forward_stages=2, backward_stages=2, backward_stagger=0),
    Case(128, causal=True): Configuration(forward_stages=2, backward_stages=2, backward_stagger=0),
    Case(64, causal=False): Configuration(forward_stages=2, backward_stages=2, backward_stagger=0),
    Case(64, causal=True): Configuration(forward_stages=2, backward_stages=2, backward_stagger=0),
}
BY_DEVICE = {"NVIDIA H200": H200}


def configuration_for(device_name: str, case: Case) -> Configuration:
    """Return what was found best on a device."""
    return BY_DEVICE.get(device_name, H200)[case]
