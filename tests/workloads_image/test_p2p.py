# SPDX-License-Identifier: Apache-2.0
"""The p2p workload: pairs of GPUs, or of processes that share memory."""

from functools import partial

import pytest
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import OutOfMemory, WrongResult
from gpupack_workloads.p2p import run
from gpupack_workloads.p2p.copies import checked_seconds
from gpupack_workloads.p2p.pattern import count_wrong, write
from gpupack_workloads.p2p.session import summarise
from gpupack_workloads.p2p.simulated import require_shared
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import seconds_per_call

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="GPUs are not simulated")
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@no_gpu
def test_without_gpus_a_process_reads_and_modifies_anothers_memory():
    result = run(Options(size=5003, seed=2))
    assert (result.verified, result.simulated, result.metrics["pairs"]) == (True, True, 1)
    assert result.metrics["checked_bytes"] == 5003


@no_gpu
def test_more_than_the_shared_memory_is_refused_before_any_work():
    with pytest.raises(OutOfMemory, match="emptyDir of medium Memory"):
        require_shared(2**50)


@pytest.mark.parametrize("key", [0, 0xA5])
def test_one_byte_that_is_wrong_or_was_not_modified_is_counted(key):
    memory = torch.empty(100_000, dtype=torch.uint8)
    write(memory, seed=9)
    memory ^= key
    assert count_wrong(memory, seed=9, key=key) == 0
    memory[77_777] ^= 4
    assert count_wrong(memory, seed=9, key=key) == 1
    assert count_wrong(memory, seed=8, key=key) > 90_000


def test_a_part_of_the_pattern_is_checked_where_it_lies():
    memory = torch.empty(1000, dtype=torch.uint8)
    write(memory, seed=1)
    assert count_wrong(memory[300:], seed=1, first=300) == 0


def test_pairs_without_access_are_timed_by_the_host_and_nothing_is_said_to_be_verified():
    row = {"reader": 0, "owner": 1, "peer_access": False, "host_gb_per_s": 52.5}
    gpu = Device(torch.device("cuda", 0), "GPU")
    result = summarise([row], 1024, gpu, checked=0)
    assert (result.verified, result.headline) == (
        False,
        "no peer access; 52.5 GB/s by host, 1 pair(s)",
    )
    assert not result.metrics.keys() & {"copy_gb_per_s", "latency_us", "copy_host_ratio", "error"}


def copy_words(target, source, *, words):
    target[:words] = source[:words]


def time_copy(words, target=None):
    target = torch.zeros(10, dtype=torch.int64) if target is None else target
    source = torch.zeros(10, dtype=torch.int64)
    work = partial(copy_words, words=words)
    clock = partial(seconds_per_call, device=torch.device("cpu"), repeats=2)
    return checked_seconds(work, target, source, seed=3, clock=clock, doing="a copy")


def test_a_copy_that_was_timed_is_compared_byte_by_byte():
    assert time_copy(10) > 0
    with pytest.raises(WrongResult, match="a copy: of 80 bytes 16 arrived wrongly"):
        time_copy(8)


def test_what_an_earlier_copy_left_does_not_pass_for_a_later_ones():
    target = torch.zeros(10, dtype=torch.int64)
    time_copy(10, target)
    with pytest.raises(WrongResult, match="80 arrived wrongly"):
        time_copy(0, target)


@pytest.mark.gpu
@two_gpus
def test_every_gpu_reads_and_modifies_every_others_memory():
    result = run(Options(size=2**26 + 3, seed=1))
    count = torch.cuda.device_count()
    assert (result.verified, len(result.rows)) == (True, count * (count - 1))
    assert result.metrics["latency_us"] > 0


@pytest.mark.gpu
@two_gpus
def test_gpus_without_enough_memory_are_reported_before_any_work():
    with pytest.raises(OutOfMemory, match="set a smaller --size"):
        run(Options(size=2**40))
