# SPDX-License-Identifier: Apache-2.0
"""The symmetric-memory workload: gangs of processes, and what the checks notice."""

import errno
import json
import os
import threading
import time
from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels.communication.peer import launch as peer
from gpupack_kernels.communication.peer.launch import PUT_PROGRAMS, Puts
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.gemm.launch import multiply_arriving
from gpupack_kernels.operators.gemm.problem import Arrivals
from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.errors import (
    BadArgument,
    NoSuchDevice,
    OutOfMemory,
    WorkloadError,
    WrongResult,
)
from gpupack_workloads.p2p.copies import MISSING
from gpupack_workloads.p2p.pattern import write
from gpupack_workloads.symmetric_memory import nvshmem, one_sided, shared_buffers
from gpupack_workloads.symmetric_memory.gathered import (
    Copies,
    OneKernel,
    Problem,
    compare,
    pays_from,
    problems_of,
    ways_of,
)
from gpupack_workloads.symmetric_memory.one_sided import Way, check, sizes
from gpupack_workloads.symmetric_memory.options import SymmetricMemoryOptions
from gpupack_workloads.symmetric_memory.session import measure, product_metrics, put_metrics
from gpupack_workloads.symmetric_memory.shared_buffers import SharedFiles, host_of

CPU = Device(torch.device("cpu"), "CPU")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALONE = Rank(index=0, ranks=1, local_index=0, device=CPU, backend="gloo")
PROBLEM = Problem(rows=96, depth=32, columns=40, dtype=torch.float32, rank=ALONE, seed=5)
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this gang is of CPUs")


@no_gpu
def test_two_processes_put_get_and_multiply(command):
    arguments = ("--size", "4000", "--rows", "130", "--depth", "36", "--columns", "34")
    outcome = command("symmetric-memory", "--json", *arguments, "--seed", "3")
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert (result["verified"], result["simulated"], result["metrics"]["ranks"]) == (True, True, 2)
    ways = {(row["way"], row["size_bytes"]) for row in result["rows"] if "way" in row}
    assert len(ways) == 5 * len(sizes(4000))
    (product,) = [row for row in result["rows"] if row["part"] == "matmul"]
    assert (product["rows"], product["columns"]) == (130, 17)
    assert {"nccl_us", "copies_us", "kernel_us", "alone_us"} <= set(product)
    assert 0 < product["error"] <= product["error_bound"]
    assert result["metrics"]["nvshmem"] == "NVSHMEM needs GPUs"
    # What CPUs take says nothing of NCCL.
    assert not [name for name in result["metrics"] if name.endswith("_nccl_ratio")]


def parts(names, **options):
    return measure(SymmetricMemoryOptions(parts=names, **options), "gloo").rows


@no_gpu
@pytest.mark.parametrize("ranks", [1, 3])
def test_any_number_of_ranks_makes_a_ring(gang, ranks):
    answers = gang(ranks, parts, ("one-sided",))
    assert [len(rows) for rows in answers] == [5 * len(sizes(2**15))] * ranks


def products(rows, depth, columns):
    options = {"rows": rows, "depth": depth, "columns": columns}
    return parts(("matmul",), **options)


@no_gpu
def test_shards_that_end_within_tiles_are_gathered_by_three_ranks(gang):
    answers = gang(3, products, (150, 387), 20, 60)
    assert [[row["rows"] for row in rows] for rows in answers] == [[150, 387]] * 3


def refused(options):
    try:
        measure(SymmetricMemoryOptions(**options), "gloo")
    except BadArgument as error:
        return str(error)


@no_gpu
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": (64, 65)}, "--rows 65 is no multiple of 2 ranks"),
        ({"columns": 33}, "--columns 33 is no multiple of 2 ranks"),
        ({"depth": 33}, "--depth 33 makes rows that are no multiple of 16 bytes"),
    ],
)
def test_what_does_not_divide_is_refused_by_every_rank(gang, options, message):
    answers = gang(2, refused, {"parts": ("matmul",), **options})
    assert answers == [message, message]


@no_gpu
def test_nothing_but_nvshmem_where_there_is_none_is_refused(gang):
    answers = gang(2, refused, {"parts": ("nvshmem",)})
    assert answers == ["--part nvshmem was requested, and NVSHMEM needs GPUs"] * 2


def test_what_is_not_asked_for_divides_by_any_number_of_ranks():
    rank = replace(ALONE, ranks=7)
    found = problems_of(SymmetricMemoryOptions(), rank)
    assert [(problem.rows, problem.columns) for problem in found] == [(63, 13), (189, 13)]


def test_ranks_of_several_workers_share_no_memory(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(BadArgument, match="2 of 4 ranks are other workers'"):
        host_of(replace(ALONE, ranks=4))


def test_a_gpu_alone_has_no_peer(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    gpu = Device(torch.device("cuda", 0), "GPU")
    with pytest.raises(NoSuchDevice, match="needs two GPUs"):
        host_of(replace(ALONE, device=gpu))


def test_sizes_grow_by_eight_up_to_the_largest():
    assert sizes(8) == [8]
    assert sizes(100) == [8, 64, 96]
    assert sizes(71) == [8, 64]
    assert sizes(2**30)[-2:] == [8**9, 2**30]


def test_more_shared_memory_than_there_is_is_refused():
    with pytest.raises(OutOfMemory, match="mount an emptyDir"):
        shared_buffers.require_shared(2**60)


def test_a_file_has_its_memory_before_it_is_written(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_buffers, "shared_folder", lambda: tmp_path)
    found = shared_buffers.made(2**20).stat()
    assert (found.st_size, found.st_blocks * 512 >= 2**20) == (2**20, True)


def test_memory_that_others_have_taken_is_missing_and_no_file_stays(monkeypatch, tmp_path):
    def full(handle, begin, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_buffers, "shared_folder", lambda: tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutOfMemory, match="No space left on device: 4096 bytes of shared memory"):
        shared_buffers.made(4096)
    assert not list(tmp_path.iterdir())


# What arrives.


def spoilt(place, value):
    """Check bytes of which one was changed."""
    with group("gloo", require_gpu=False) as rank:
        arrived = torch.full((16 + one_sided.MARGIN // 8,), -1, dtype=torch.int64)
        write(arrived.view(torch.uint8)[:128], seed=4)
        arrived.view(torch.uint8)[place] = value
        way = Way(lambda count: None, arrived, source=0)
        try:
            check("put", way, 128, rank=rank, seed=4)
        except WrongResult as error:
            return str(error)


@no_gpu
def test_a_wrong_byte_and_one_that_was_written_behind_are_noticed(gang):
    assert gang(1, spoilt, 200, MISSING) == [None]
    assert "1 bytes that arrived are wrong, 0 behind" in gang(1, spoilt, 17, MISSING)[0]
    assert "0 bytes that arrived are wrong, 1 behind" in gang(1, spoilt, 128, 0)[0]


def test_puts_are_there_when_their_signals_are():
    signals = torch.zeros(PUT_PROGRAMS, dtype=torch.int32, device=DEVICE)
    puts = Puts(signals, signals)
    for size in (1, 2049, 5000, 3):
        mine = torch.arange(size, device=DEVICE)
        whole = torch.full((size + 1,), -1, device=DEVICE)
        puts.put(whole[:size], mine)
        assert torch.equal(whole[:size], mine)
        assert whole[size] == -1
    assert puts.missed() == 0
    # As many calls as each program has made.
    assert signals[:4].tolist() == [4, 2, 1, 0]


def test_a_signal_that_does_not_come_ends_the_wait_and_is_counted(monkeypatch):
    monkeypatch.setattr(peer, "MAX_POLLS", 10)
    theirs, mine = (torch.zeros(PUT_PROGRAMS, dtype=torch.int32, device=DEVICE) for _ in range(2))
    puts = Puts(theirs, mine)
    word = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    puts.put(word, word.clone())
    assert puts.missed() == 1
    with pytest.raises(WrongResult, match="1 signals of puts did not come"):
        one_sided.require_signals(puts, 0)


# Products.


def product() -> torch.Tensor:
    a = torch.cat([PROBLEM.shard(rank) for rank in range(PROBLEM.rank.ranks)])
    return a @ PROBLEM.weight().T


def test_a_right_product_agrees():
    assert compare(product(), PROBLEM).holds


@pytest.mark.parametrize("wrong", [1e-3, float("nan"), float("inf")])
def test_one_wrong_element_is_noticed(wrong):
    c = product()
    c[70, 3] += wrong
    assert not compare(c, PROBLEM).holds


def test_shards_that_were_exchanged_are_noticed():
    problem = replace(PROBLEM, rank=replace(ALONE, ranks=2))
    shards = [problem.shard(rank) for rank in (1, 0)]
    assert not compare(torch.cat(shards) @ problem.weight().T, problem).holds


def lazy(name):
    """Multiply without what others would send; return the checks before and after it comes."""
    with group("gloo", require_gpu=False) as rank:
        (problem,) = problems_of(SymmetricMemoryOptions(rows=(64,)), rank)
        host = SharedFiles(rank)
        both = [host.allocate((problem.rows, problem.depth), problem.dtype) for _ in range(2)]
        way = ways_of(problem, host, both)[name]
        one_sided.together(rank.device.torch)
        way.spoil()
        way()
        right = compare(way.result, problem).holds
        one_sided.together(rank.device.torch)
        fetched = (Copies, OneKernel)[name == "kernel"]
        assert isinstance(way, fetched)
        way._fetch = lambda buffer, source: lambda: None
        way.spoil()
        way()
        return right, compare(way.result, problem).holds


@no_gpu
@pytest.mark.parametrize("name", ["copies", "kernel"])
def test_a_shard_that_was_not_fetched_is_noticed(gang, name):
    assert gang(2, lazy, name) == [(True, False)] * 2


def arriving(rows, parts, own, late):
    """Multiply while parts arrive from another thread; return the product and what it should be."""
    chance = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=chance) for shape in ((rows, 32), (32, 24)))
    half = DEVICE == "cuda"
    a, b = (one.to(DEVICE, torch.bfloat16 if half else torch.float32) for one in (a, b))
    there = torch.full_like(a, torch.nan)
    height = rows // parts
    flags = torch.zeros(parts, dtype=torch.int32, device=DEVICE)
    there[own * height : (own + 1) * height] = a[own * height : (own + 1) * height]
    flags[own] = 1
    c = torch.full((rows, 24), torch.nan, dtype=a.dtype, device=DEVICE)
    sender = threading.Thread(target=send, args=(a, there, flags, own, late))
    if half:
        torch.cuda.synchronize()
    sender.start()
    multiply_arriving(there, b, c, Arrivals(flags, height, own))
    sender.join()
    return c, a @ b


def send(a, there, flags, own, late):
    parts = flags.numel()
    stream = torch.cuda.Stream() if a.is_cuda else None
    with torch.cuda.stream(stream):
        for step in range(1, parts):
            time.sleep(late)
            part = (own + step) % parts
            there.chunk(parts)[part].copy_(a.chunk(parts)[part], non_blocking=True)
            flags[part : part + 1].copy_(flags[own : own + 1], non_blocking=True)


@pytest.mark.parametrize(
    ("rows", "parts", "own"), [(128, 1, 0), (256, 2, 1), (300, 3, 1), (520, 4, 3), (96, 8, 5)]
)
def test_a_product_waits_for_rows_that_still_arrive(rows, parts, own):
    c, wanted = arriving(rows, parts, own, late=0.02)
    torch.testing.assert_close(c, wanted, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flags": torch.zeros(3, dtype=torch.int32)}, "do not cover 64 rows"),
        ({"flags": torch.zeros(2)}, "of torch.float32"),
        ({"flags": torch.zeros(2, dtype=torch.int32, device="meta")}, "meta must be contiguous"),
        ({"flags": torch.zeros(4, dtype=torch.int32)[::2]}, "must be contiguous on cpu"),
        ({"first": 2}, "part 2 is not among 2"),
    ],
)
def test_flags_that_do_not_fit_are_refused(change, message):
    a, b, c = torch.zeros(64, 8), torch.zeros(8, 4), torch.zeros(64, 4)
    arrivals = replace(Arrivals(torch.zeros(2, dtype=torch.int32), 32, 0), **change)
    with pytest.raises(Unsupported, match=message):
        multiply_arriving(a, b, c, arrivals)


def test_matrices_that_do_not_fit_are_refused():
    arrivals = Arrivals(torch.zeros(2, dtype=torch.int32), 32, 0)
    with pytest.raises(Unsupported, match=r"cannot write .* to \(64, 5\)"):
        multiply_arriving(torch.zeros(64, 8), torch.zeros(8, 4), torch.zeros(64, 5), arrivals)
    with pytest.raises(Unsupported, match="the result must be contiguous"):
        multiply_arriving(torch.zeros(64, 8), torch.zeros(8, 4), torch.zeros(4, 64).T, arrivals)
    with pytest.raises(Unsupported, match="that still arrives must be contiguous"):
        multiply_arriving(torch.zeros(8, 64).T, torch.zeros(8, 4), torch.zeros(64, 4), arrivals)


# The result.


def row(rows, **ratios):
    return {"part": "matmul", "rows": rows} | {f"{k}_nccl_ratio": v for k, v in ratios.items()}


def test_it_pays_from_where_every_larger_size_is_faster():
    table = [row(512, kernel=1.2, copies=0.7), row(1024, kernel=0.9, copies=0.8)]
    table += [row(2048, kernel=1.1, copies=0.9), row(4096, kernel=1.3, copies=1.0)]
    assert (pays_from(table, "kernel"), pays_from(table, "copies")) == (2048, None)
    metrics = product_metrics(table)
    assert (metrics["kernel_nccl_ratio"], metrics["kernel_best_rows"]) == (1.3, 4096)
    assert "copies_pays_from_rows" not in metrics
    assert "torch_nccl_ratio" not in metrics


WAYS_US = {"triton put": (3.0, 10.0), "copy put": (9.0, 16.0), "send-recv": (12.0, 15.0)}


def test_puts_are_compared_with_send_and_receive():
    table = [
        {"way": way, "size_bytes": size, "us": us, "gb_per_s": size / us / 1e3}
        for way, times in WAYS_US.items()
        for size, us in zip((8, 4000), times, strict=True)
    ]
    metrics = put_metrics(table, simulated=False)
    assert metrics["triton_put_latency_us"] == 3.0
    assert metrics["triton_put_send_recv_ratio"] == 1.5
    assert (metrics["triton_put_pays_to_bytes"], metrics["copy_put_pays_to_bytes"]) == (4000, 8)
    assert "send_recv_send_recv_ratio" not in metrics
    assert not [name for name in put_metrics(table, simulated=True) if "ratio" in name]


# NVSHMEM.


def failing_nvshmem():
    """Have processing elements start where there is no GPU."""
    nvshmem.START_SECONDS = 600
    with group("gloo", require_gpu=False) as rank:
        nvshmem.missing = lambda rank: None
        gpu = Device(torch.device("cuda", rank.index), "GPU")
        return nvshmem.measure(replace(rank, device=gpu), [8], 0)


@no_gpu
def test_a_failure_of_nvshmem_is_reported_and_ends_no_other_part(gang):
    answers = gang(2, failing_nvshmem)
    assert [rows for rows, _ in answers] == [[], []]
    assert answers[0] == answers[1]
    assert answers[0][1].startswith(("RuntimeError", "AssertionError"))


def failing_alone():
    """Ask for nothing but NVSHMEM, which is there and fails."""
    nvshmem.missing = lambda rank: None
    nvshmem.measure = lambda rank, sizes, seed: ([], "RuntimeError: no symmetric heap")
    try:
        measure(SymmetricMemoryOptions(parts=("nvshmem",)), "gloo")
    except WorkloadError as error:
        return error.exit_status, str(error)


@no_gpu
def test_nvshmem_that_is_there_and_fails_is_no_bad_argument(gang):
    message = "--part nvshmem was requested, and RuntimeError: no symmetric heap"
    assert gang(2, failing_alone) == [(1, message)] * 2


def test_wrong_bytes_come_before_the_silence_of_who_waits_for_the_one_that_found_them():
    silent, wrong = "its process said nothing for 100 s", "wrong bytes: rank 1: 3 are wrong"
    assert nvshmem.first_reason([None, silent, wrong]) == wrong
    assert nvshmem.first_reason([None, silent, "its process ended"]) == silent
    assert nvshmem.first_reason([None, None]) is None


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(nvshmem.importlib.util, "find_spec", lambda name: None)
    gpu = Device(torch.device("cuda", 0), "GPU")
    assert "pip install nvshmem4py" in nvshmem.missing(replace(ALONE, device=gpu))
    assert nvshmem.missing(ALONE) == "NVSHMEM needs GPUs"


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_put_get_and_multiply(command):
    arguments = ("--size", "1048576", "--rows", "512", "--rows", "1536")
    count = torch.cuda.device_count()
    outcome = command("symmetric-memory", "--json", *arguments, processes=count)
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    found = [row for row in result["rows"] if row["part"] == "matmul"]
    assert [row["rows"] for row in found] == [512, 1536]
    assert all("torch_nccl_ratio" in row for row in found)
