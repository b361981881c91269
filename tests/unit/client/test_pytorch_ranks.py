# SPDX-License-Identifier: Apache-2.0
"""Which rank a process in a worker is, by its environment; torch is not needed for that."""

import pytest

from gpupack.errors import Unsupported
from gpupack.frameworks.pytorch import ranks_of

A_RANK = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    "environ", [{}, {"GPUPACK_WORKERS": "1"}, A_RANK, {"GPUPACK_WORKERS": "2", **A_RANK}]
)
def test_a_process_is_the_rank_that_it_was_given_or_the_only_one(environ):
    assert ranks_of(environ) == environ


def test_a_worker_of_several_does_not_train_by_itself_unnoticed():
    with pytest.raises(Unsupported, match=r"one of 2 workers.*WORLD_SIZE.*torchrun"):
        ranks_of({"GPUPACK_WORKERS": "2"})
