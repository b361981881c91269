# SPDX-License-Identifier: Apache-2.0
"""Tuned configurations of the Hopper kernels by device.

A device that is not here takes what was found on the one that is most like it.
"""

from dataclasses import dataclass

HOPPER_DIMENSIONS = (64, 128)
"""Of a head; the Hopper kernels have layouts for no other."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Configuration of the Hopper kernels.

    Attributes:
        forward_stages: tiles of K and of V in shared memory at a time.
        backward_stages: tiles of Q and of dO in shared memory at a time.
        backward_stagger: how many tiles of queries later each next program starts.
    """

    forward_stages: int
    backward_stages: int
    backward_stagger: int


@dataclass(frozen=True)
class TuningKey:
    """Key of a tuned configuration."""

    dimension: int
    causal: bool


# Found on an H200 with 16 heads of length 16384 in bf16, by Triton 3.9. At dimension 128 a third
# stage of Q and dO makes the backward pass 1.4 times as fast, and starting later costs 1 %; at 64 a
# fourth stage makes it 1 to 3 % faster.
WIDE = Configuration(forward_stages=2, backward_stages=3, backward_stagger=0)
NARROW = Configuration(forward_stages=3, backward_stages=4, backward_stagger=0)
H200 = {
    TuningKey(128, causal=False): WIDE,
    TuningKey(128, causal=True): WIDE,
    TuningKey(64, causal=False): NARROW,
    TuningKey(64, causal=True): NARROW,
}
BY_DEVICE = {"NVIDIA H200": H200}


def configuration_for(device_name: str, key: TuningKey) -> Configuration:
    """Return what was found best on a device."""
    return BY_DEVICE.get(device_name, H200)[key]


def owners_together(owners: int, tiles: int, *, programs_at_once: int) -> int:
    """Return of how many heads the longest tiles start first, where a causal mask makes some short.

    One head after the other would leave what its tiles share in the L2 cache, but its longest tile
    takes as long as all multiprocessors take for several whole heads, and the last head's would go
    on alone. So there are as many at a time as keep all busy for that long; a head's tiles are half
    as long as its longest on average.

    Args:
        owners: heads, of all batches.
        tiles: of each; the longest sees all, the shortest nearly nothing.
        programs_at_once: one for each multiprocessor.
    """
    groups = max(1, owners * tiles // (2 * programs_at_once))
    return max(1, owners // groups)
