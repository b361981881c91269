# SPDX-License-Identifier: Apache-2.0
"""The collectives workload: a gang of two processes, and what the check notices."""

import itertools
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.distributed as dist

from gpupack_workloads.collectives import tune
from gpupack_workloads.collectives.all_gather import AllGather
from gpupack_workloads.collectives.all_reduce import AllReduce
from gpupack_workloads.collectives.measure import (
    BATCHES,
    WARM_UP,
    Calls,
    elements_of,
    measure,
    median_seconds,
    needed_bytes,
    series_of,
    sizes,
)
from gpupack_workloads.collectives.methods import nccl
from gpupack_workloads.collectives.options import (
    DTYPES,
    OPERATIONS,
    REDUCE_OPS,
    REDUCING,
    CollectivesOptions,
)
from gpupack_workloads.collectives.rank import OPERATIONS as BY_NAME
from gpupack_workloads.collectives.rank import measurements, rank_data_of
from gpupack_workloads.collectives.rank_data import MISSING, RankData, count_wrong, fill
from gpupack_workloads.collectives.series import Series
from gpupack_workloads.collectives.start import require_range
from gpupack_workloads.collectives.tune import compared, require_tunable
from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import (
    BadArgument,
    NoSuchDevice,
    OutOfMemory,
    WorkloadError,
    WrongResult,
)
from gpupack_workloads.memory import container_bytes
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang

CPU = torch.device("cpu")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this gang is of CPUs")


@pytest.fixture
def alone():
    """A group of this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield RankData(rank=0, ranks=1, device=CPU, seed=3)
    dist.destroy_process_group()


@no_gpu
def test_two_processes_check_and_time_every_operation(command):
    outcome = command("collectives", "--json", "--size", "128", "--smallest", "8")
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert {row["operation"] for row in result["rows"]} == set(OPERATIONS)
    assert (result["verified"], result["simulated"], result["metrics"]["ranks"]) == (True, True, 2)
    assert len(result["rows"]) == 5 * (1 + 2 + 2 + 1 + 1 + 1 + 1 + 1 + 1)
    assert all(
        row["rank_min_us"] <= row["rank_avg_us"] <= row["rank_max_us"] for row in result["rows"]
    )


@pytest.mark.parametrize(("gpus", "smallest"), [(False, 2**20), (True, 2**33)])
def test_a_first_buffer_above_the_devices_largest_is_refused(gpus, smallest):
    options = CollectivesOptions(smallest=smallest)
    with pytest.raises(BadArgument, match=f"--smallest {smallest} is above .* give --size, too"):
        require_range(options, gpus=gpus)
    require_range(replace(options, size=smallest), gpus=gpus)


@no_gpu
def test_a_first_buffer_that_is_too_large_starts_no_process(command):
    outcome = command("collectives", "--smallest", str(2**20))
    assert (outcome.returncode, "is above the largest buffer" in outcome.stderr) == (2, True)
    assert "Traceback" not in outcome.stderr


def test_a_buffer_that_does_not_fit_is_refused(alone):
    with pytest.raises(OutOfMemory, match="set a smaller --size"):
        require_memory_on_all_ranks(2**50, Device(CPU, "CPU"), doing="a buffer")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_one_rank_is_right_and_uses_no_bus(alone, name):
    for in_place in BY_NAME[name].in_place:
        assert measure(BY_NAME[name], 52, alone, in_place=in_place).bus_gb_per_s == 0


@pytest.mark.parametrize(
    ("name", "crossings"),
    [
        ("all-reduce", 1.5),
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("broadcast", 1),
        ("all-to-all", 0.75),
        ("send-recv", 1),
        ("reduce", 1),
        ("gather", 0.75),
        ("scatter", 0.75),
    ],
)
def test_of_four_ranks_each_byte_crosses_a_link_as_often_as_nccl_tests_say(name, crossings):
    assert BY_NAME[name].crossings(4) == crossings


class Lazy(AllGather):
    """Works while it warms up, and leaves out the last element later."""

    def __init__(self):
        self.calls = 0

    def start(self, buffers, rank_data):
        self.calls += 1
        last = buffers.receive[-1].clone()
        super().start(buffers, rank_data)
        if self.calls > WARM_UP["cpu"]:
            buffers.receive[-1] = last


def test_an_element_that_did_not_arrive_while_it_was_timed_is_a_wrong_result(alone):
    with pytest.raises(WrongResult, match="all-gather: 1 of 8 elements"):
        measure(Lazy(), 32, alone, in_place=False)


def sums_in_place(calls):
    with group("gloo", require_gpu=False) as rank:
        rank_data = rank_data_of(rank, seed=4)
        series = series_of(AllReduce(), 1000, rank_data, in_place=True, repeats=3)
        series.fill()
        for _ in range(calls):
            series.start()
        series.check()


@no_gpu
def test_each_call_in_place_sums_what_no_other_has_summed(gang):
    assert gang(2, sums_in_place, 3) == [None, None]


@no_gpu
@pytest.mark.parametrize("calls", [2, 4])
def test_a_sum_that_is_missing_or_was_summed_again_is_noticed(gang, calls):
    answers = gang(2, sums_in_place, calls)
    assert all("of 3000 elements" in str(answer) for answer in answers)


def small_sums(_):
    with group("gloo", require_gpu=False) as rank:
        rank_data = rank_data_of(rank, seed=4)
        series = Series("sums", nccl(rank_data, 300, 3).calls(130), rank=rank.index)
        series.run()
        return median_seconds(series.start, rank_data, repeats=3, ready=series.fill), series.check()


@no_gpu
def test_small_sums_are_checked_as_they_were_timed(gang):
    (mine, _), (theirs, _) = gang(2, small_sums, None)
    assert mine == theirs > 0


def test_data_differ_by_rank_and_their_sum_is_exact():
    ranks_data = [RankData(rank=rank, ranks=3, device=CPU, seed=5) for rank in range(3)]
    parts = [rank_data.term(rank_data.rank, 7, 100) for rank_data in ranks_data]
    assert not torch.equal(parts[0], parts[1])
    assert torch.equal(ranks_data[0].reduced(7, 100), parts[0] + parts[1] + parts[2])


def test_one_wrong_element_is_counted():
    rank_data = RankData(rank=1, ranks=2, device=CPU, seed=0)
    buffer = rank_data.zeros(1000)
    fill(buffer, rank_data.data(1))
    buffer[500] += 1
    assert count_wrong(buffer, rank_data.data(1)) == 1


def every_type_and_reduction(sizes_bytes):
    """What went wrong with each type and reduction; operations that reduce nothing come once."""
    errors = {}
    with group("gloo", require_gpu=False) as rank:
        for dtype, reduce_op in itertools.product(DTYPES, REDUCE_OPS):
            options = CollectivesOptions(dtype=dtype, reduce_op=reduce_op, iterations=2, warmup=0)
            for name in OPERATIONS if reduce_op == "sum" else REDUCING:
                try:
                    list(measurements((name,), sizes_bytes, rank, options))
                except WorkloadError as error:
                    errors[dtype, reduce_op, name] = error
    return errors


@no_gpu
def test_three_ranks_check_every_type_and_reduction_exactly(gang):
    answers = gang(3, every_type_and_reduction, [100])
    whole = [dtype for dtype in DTYPES if "int" in dtype]
    # gloo divides by the ranks in floats.
    unserved = {(dtype, "avg", name) for dtype in whole for name in REDUCING}
    assert [set(errors) for errors in answers] == [unserved] * 3
    assert {type(error) for error in answers[0].values()} == {BadArgument}
    assert "gloo has no reduce of torch.int8 by avg" in str(answers[0]["int8", "avg", "reduce"])


REDUCTIONS = {
    "sum": lambda terms: terms.sum(0),
    "prod": lambda terms: terms.prod(0),
    "min": lambda terms: terms.amin(0),
    "max": lambda terms: terms.amax(0),
    "avg": lambda terms: terms.double().mean(0).floor(),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("reduce_op", REDUCE_OPS)
@pytest.mark.parametrize("ranks", [1, 5, 40])
def test_what_whole_numbers_give_wraps_as_they_do(dtype, reduce_op, ranks):
    data = [RankData(rank, ranks, CPU, 2, dtype, reduce_op) for rank in range(ranks)]
    terms = torch.stack([one.term(one.rank, 3, 200) for one in data]).long()
    assert torch.equal(data[0].reduced(3, 200), REDUCTIONS[reduce_op](terms).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("reduce_op", ["sum", "prod", "min", "max"])
def test_what_floats_give_is_the_same_in_any_order(dtype, reduce_op):
    data = [RankData(rank, 7, CPU, 2, dtype, reduce_op) for rank in range(7)]
    terms = torch.stack([one.term(one.rank, 3, 200) for one in data])
    assert torch.equal(data[0].reduced(3, 200), REDUCTIONS[reduce_op](terms))
    assert torch.equal(data[0].reduced(3, 200), REDUCTIONS[reduce_op](terms.flip(0)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mean_of_floats_may_round_and_no_more(dtype):
    data = [RankData(rank, 7, CPU, 2, dtype, "avg") for rank in range(7)]
    mean = sum(one.term(one.rank, 3, 200) / 7 for one in data)
    check = partial(count_wrong, values=lambda first, count: data[0].reduced(3, count))
    assert check(mean, tolerance=data[0].tolerance) == 0
    mean[5] *= 1 + 20 * torch.finfo(dtype).eps
    mean[6] = torch.nan
    assert check(mean, tolerance=data[0].tolerance) == 2


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("reduce_op", REDUCE_OPS)
def test_what_has_not_arrived_is_never_a_result(name, reduce_op):
    data = RankData(0, 4, CPU, 2, getattr(torch, name), reduce_op)
    whole = data.zeros(1000).fill_(MISSING)
    assert count_wrong(whole, data.reduced, tolerance=data.tolerance) >= 1000 - 1000 // data.modulus


def test_more_ranks_than_a_type_can_count_are_refused():
    assert RankData(0, 128, CPU, 0, torch.bfloat16).modulus == 3
    with pytest.raises(BadArgument, match=r"bfloat16 counts exactly to 256: sums over 257 ranks"):
        RankData(0, 257, CPU, 0, torch.bfloat16).term(0, 0, 1)


class Counted(AllReduce):
    """Counts how often it is called."""

    def __init__(self):
        self.calls = 0

    def start(self, buffers, rank_data):
        self.calls += 1
        super().start(buffers, rank_data)


def test_batches_have_the_calls_that_were_asked_for(alone):
    operation = Counted()
    measure(operation, 8, alone, in_place=True, often=Calls(iterations=5, warmup=2))
    assert operation.calls == 2 + BATCHES["cpu"] * 5


def test_sizes_double_and_are_whole_elements_for_every_rank():
    assert (sizes(8, 100), sizes(8, 8)) == ([8, 16, 32, 64], [8])
    assert elements_of(8, ranks=4, shared=True) == 4
    assert elements_of(8, ranks=4, shared=False) == 2
    assert elements_of(2**32, ranks=3, shared=True) % 3 == 0
    assert elements_of(7, ranks=1, shared=False, element_bytes=1) == 7


def test_the_room_that_is_asked_for_holds_every_call_of_a_batch_in_place():
    gpu, gib = torch.device("cuda"), 2**30
    assert needed_bytes(4 * gib, gpu) == 3 * 4 * gib + 6 * gib // 4
    assert needed_bytes(gib, gpu, iterations=9, element_bytes=1) == 9 * gib + 6 * gib // 4
    assert needed_bytes(4 * gib, CPU) == 2 * 4 * gib + 6 * gib // 4


def test_what_a_container_may_take_is_its_limit_less_what_it_has(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert container_bytes(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert container_bytes(tmp_path) > 2**60


@pytest.mark.parametrize(
    ("gang", "gpus", "kind", "message"),
    [
        (Gang(workers=2), True, BadArgument, "this gang has 2"),
        (Gang(backend="gloo"), True, BadArgument, "wants gloo"),
        (Gang(), False, NoSuchDevice, "NCCL needs GPUs"),
    ],
)
def test_settings_of_nccl_that_cannot_be_tried_are_refused(gang, gpus, kind, message):
    with pytest.raises(kind, match=message):
        require_tunable(gang, gpus=gpus)


def test_defaults_that_beat_every_setting_have_a_ratio_above_one():
    ours = {"all_reduce_bus_gb_per_s": 364.0}
    result = Result(workload="", headline="", verified=True, simulated=False, metrics=ours)
    found = compared(result, {"defaults": 350.0, "NCCL_ALGO=Tree": 260.0}).metrics
    assert (found["all_reduce_nccl_best_ratio"], found["nccl_best_setting"]) == (1.04, "defaults")


def test_no_setting_that_works_is_an_error(monkeypatch):
    def fail(*_):
        raise WorkloadError("a rank died")

    monkeypatch.setattr(tune, "launch", fail)
    with pytest.raises(WorkloadError, match="no setting of NCCL worked"):
        tune.tried(CollectivesOptions(), Gang())


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_check_every_operation_and_small_sums(command):
    outcome = command(
        "collectives", "--json", "--size", "16777216", processes=torch.cuda.device_count()
    )
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert {row["operation"] for row in result["rows"]} == set(OPERATIONS)
    assert {"nccl", "packets"} <= {row.get("method") for row in result["rows"]}
