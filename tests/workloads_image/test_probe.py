# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.distributed.probe import MAX_BYTES, SECONDS, SMALL_BYTES, large_bytes


@pytest.mark.parametrize(
    ("small_seconds", "size_bytes"),
    [(1e-5, MAX_BYTES["nccl"]), (0.02, 4 * SMALL_BYTES), (0.09, SMALL_BYTES), (30, SMALL_BYTES)],
)
def test_the_slower_the_network_the_smaller_the_buffer(small_seconds, size_bytes):
    assert large_bytes(small_seconds, limit_bytes=MAX_BYTES["nccl"]) == size_bytes


def test_a_call_takes_no_longer_than_allowed_where_a_small_one_does_not():
    for small_seconds in (1e-4, 1e-3, 1e-2, SECONDS):
        size = large_bytes(small_seconds, limit_bytes=MAX_BYTES["nccl"])
        assert small_seconds * size / SMALL_BYTES <= SECONDS
