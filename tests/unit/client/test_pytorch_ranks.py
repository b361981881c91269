# SPDX-License-Identifier: Apache-2.0
"""The rank of a process in a worker, from its environment; torch is not needed."""

import pytest

from gpupack.errors import Unsupported
from gpupack.frameworks.pytorch import ranks_of

A_RANK = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    "environ", [{}, {"GPUPACK_WORKERS": "1"}, A_RANK, {"GPUPACK_WORKERS": "2", **A_RANK}]
)
def test_a_process_is_the_given_rank_or_the_only_one(environ):
    assert ranks_of(environ) == environ


def test_a_worker_of_several_without_a_rank_is_refused():
    with pytest.raises(Unsupported, match=r"one of 2 workers.*WORLD_SIZE.*torchrun"):
        ranks_of({"GPUPACK_WORKERS": "2"})
