# SPDX-License-Identifier: Apache-2.0
"""The kernels over another GPU's memory, here over one device's: what they do with bytes."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels.communication.peer.launch import copy, modify, ping
from gpupack_kernels.errors import Unsupported

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEY = 0xA5


def buffer(size: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    chance = torch.Generator().manual_seed(size)
    return torch.randint(0, 127, (size,), generator=chance).to(DEVICE, dtype)


@pytest.mark.parametrize("size", [1, 13, 8191, 8193, 20000])
def test_every_byte_is_read_and_modified_and_none_around_them(size):
    whole = buffer(size + 32)
    before = whole.clone()
    seen = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
    modify(seen, whole[16 : 16 + size], key=KEY)
    assert torch.equal(seen, before[16 : 16 + size])
    before[16 : 16 + size] ^= KEY
    assert torch.equal(whole, before)


@pytest.mark.parametrize("size", [1, 2047, 5000])
def test_words_are_copied(size):
    source, target = buffer(size, torch.int64), torch.zeros(size + 1, dtype=torch.int64).to(DEVICE)
    copy(target[:size], source)
    assert torch.equal(target[:size], source)
    assert target[size] == 0


@pytest.mark.parametrize("leader", [True, False])
def test_a_side_that_hears_every_round_has_done_them_all(leader):
    mine = torch.full((1,), 5, dtype=torch.int32, device=DEVICE)
    theirs, done = torch.zeros_like(mine), torch.zeros_like(mine)
    ping(mine, theirs, done, rounds=5, leader=leader)
    assert (theirs.item(), done.item()) == (5, 5)


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        (buffer(4), buffer(4, torch.int64), "not of torch.int64"),
        (buffer(4, torch.int64), buffer(5, torch.int64), "cannot copy 5 elements to 4"),
        (buffer(4, torch.int64), buffer(8, torch.int64)[::2], "contiguous"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(target, source, message):
    with pytest.raises(Unsupported, match=message):
        copy(target, source)
