# SPDX-License-Identifier: Apache-2.0
"""Bandwidths by the method of nccl-tests.

Algorithm bandwidth is the buffer's size over the time. Bus bandwidth corrects it by how often each
byte has to cross a link, so that it can be compared with the hardware's figure whatever the number
of ranks: an all-reduce moves 2(n-1)/n of the buffer in and out of every rank.
"""

GB = 1e9


def algorithm_gb_per_s(*, size_bytes: int, seconds: float) -> float:
    """Return size over time."""
    return size_bytes / seconds / GB


def bus_gb_per_s(*, size_bytes: int, seconds: float, crossings: float) -> float:
    """Return the traffic per link, by how often each byte has to cross one."""
    return algorithm_gb_per_s(size_bytes=size_bytes, seconds=seconds) * crossings
