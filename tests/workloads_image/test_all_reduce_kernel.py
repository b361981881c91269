# SPDX-License-Identifier: Apache-2.0
"""The all-reduce kernel: interpreted, by two processes that share the memory of their inboxes."""

import multiprocessing
import os
from multiprocessing.shared_memory import SharedMemory

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels.communication.all_reduce.launch import AllReduce, inbox_words
from gpupack_kernels.errors import Unsupported

CPU = torch.device("cpu")
LARGEST_BYTES = 2048
# Ragged, alternating, and more than one program.
SIZES = [1, 2, 130, 5, 512, 129, 512, 511]

interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test is the gang's")


def part(rank: int, size: int, turn: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * turn + rank))


def in_order_of_ranks(parts: list[torch.Tensor]) -> torch.Tensor:
    """What the kernel must give, bit for bit."""
    total = torch.zeros_like(parts[0])
    for other in parts:
        total += other
    return total


def sums(names: list[str], rank: int, answers: "multiprocessing.Queue[list[torch.Tensor]]") -> None:
    memories = [SharedMemory(name) for name in names]
    inboxes = [torch.frombuffer(memory.buf, dtype=torch.int64) for memory in memories]
    summing = AllReduce(
        [inbox.data_ptr() for inbox in inboxes], rank=rank, device=CPU, largest_bytes=LARGEST_BYTES
    )
    found = []
    for turn, size in enumerate(SIZES):
        total = torch.empty(size)
        summing(part(rank, size, turn), total)
        found.append(total.tolist())
    answers.put((rank, found))
    # Tensors over shared memory must be gone before it is closed.
    del inboxes, summing
    for memory in memories:
        memory.close()


@pytest.fixture
def inboxes():
    memories = [
        SharedMemory(create=True, size=8 * inbox_words(ranks=2, largest_bytes=LARGEST_BYTES))
        for _ in range(2)
    ]
    yield [memory.name for memory in memories]
    for memory in memories:
        memory.close()
        memory.unlink()


@interpreted
def test_two_ranks_get_the_same_bits_whatever_the_size_was_before(inboxes):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    ranks = [spawn.Process(target=sums, args=(inboxes, rank, answers)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    found = dict(answers.get(timeout=120) for _ in ranks)
    for rank in ranks:
        rank.join()
    expected = [
        in_order_of_ranks([part(rank, size, turn) for rank in range(2)]).tolist()
        for turn, size in enumerate(SIZES)
    ]
    assert found == {0: expected, 1: expected}


@pytest.mark.parametrize(
    ("mine", "total", "message"),
    [
        (torch.zeros(4), torch.zeros(5), "sizes must be equal"),
        (torch.zeros(513), torch.zeros(513), "1 to 512"),
        (torch.zeros(4, dtype=torch.float16), torch.zeros(4), "both must be float32"),
        (torch.zeros(8)[::2], torch.zeros(4), "contiguous"),
    ],
)
def test_buffers_that_cannot_be_summed_are_refused(mine, total, message):
    alone = AllReduce([0], rank=0, device=CPU, largest_bytes=LARGEST_BYTES)
    with pytest.raises(Unsupported, match=message):
        alone(mine, total)
