# SPDX-License-Identifier: Apache-2.0
"""The burn-in, healthy and with faults put into it."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from gpupack_workloads.burn_in.checks import ComputeReport, Observed
from gpupack_workloads.burn_in.compute import Products
from gpupack_workloads.burn_in.limits import BurnInOptions
from gpupack_workloads.burn_in.memory import Memory
from gpupack_workloads.burn_in.patterns import Address, Inverted, Random, Walking, sequence
from gpupack_workloads.burn_in.peers import Peer, exchange, limits_from
from gpupack_workloads.burn_in.sensors import Sample, Slowdowns
from gpupack_workloads.burn_in.session import Instruments, run
from gpupack_workloads.burn_in.verdict import summarise
from gpupack_workloads.devices import Device, memory_errors
from gpupack_workloads.errors import OutOfMemory, WrongResult
from gpupack_workloads.seeds import LARGEST_SEED
from gpupack_workloads.settings import Gang

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.bfloat16 if DEVICE.type == "cuda" else torch.float32, torch.float16]
# Faults in memory are looked for in little of it on a GPU, too.
LITTLE = BurnInOptions(seconds=1, memory_percent=1, limits={"min_steady_ratio": None}, seed=5)

PATTERNS = [
    Address(),
    Random(3),
    Random(LARGEST_SEED),
    Walking(7),
    Inverted(Address()),
    Inverted(Walking(63)),
]


def small_memory(touch=lambda blocks: None):
    return Memory(DEVICE, tested_bytes=2**16, block_bytes=2**13, touch=touch)


class Tally:
    """Counts calls, and does something else at one of them."""

    def __init__(self, usual, at, other):
        self.calls, self.usual, self.at, self.other = 0, usual, at, other

    def __call__(self, *arguments):
        self.calls += 1
        return (self.other if self.calls == self.at else self.usual)(*arguments)


def flip(bit, place):
    def touch(blocks):
        words = blocks[place // 1024]
        words[place % 1024] ^= 1 << bit

    return touch


def multiply(a, b, out):
    torch.mm(a, b, out=out)


def wrong_once(a, b, out):
    torch.mm(a, b, out=out)
    out[3, 4] += 1


def unhealthy(**faults):
    """What a run with these faults finds: the error's result."""
    with pytest.raises(WrongResult) as caught:
        run(LITTLE, Instruments(**faults))
    assert caught.value.result is not None
    return caught.value.result


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_memory_that_keeps_its_words_is_right(pattern):
    memory = small_memory()
    memory.write(pattern)
    memory.compare(pattern)
    report = memory.report()
    assert (report.tested_bytes, report.passes, report.wrong_words) == (2**16, 1, 0)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_one_flipped_bit_is_found_with_its_place(pattern):
    memory = small_memory(flip(bit=5, place=2050))
    memory.write(pattern)
    memory.compare(pattern)
    report = memory.report()
    assert report.wrong_words == 1
    assert f"{pattern.name}: byte {2050 * 8:#x}" in report.detail
    assert "bit 5 flipped" in report.detail


def test_two_places_that_share_a_cell_are_found():
    def alias(blocks):
        blocks[0].copy_(blocks[4])

    memory = small_memory(alias)
    memory.write(Address())
    memory.compare(Address())
    assert memory.report().wrong_words == 1024


def test_every_bit_of_a_word_is_one_and_zero_within_the_walk():
    ones, zeros = torch.zeros(2, 64, dtype=torch.int64), torch.full((2, 64), -1)
    for step in range(64):
        block = torch.empty(64, dtype=torch.int64)
        Walking(step).fill(block, 0)
        ones |= block
        Inverted(Walking(step)).fill(block, 0)
        zeros &= block
    assert (ones == -1).all()
    assert (zeros == 0).all()


def test_a_sequence_starts_with_what_tells_most_and_never_repeats_its_random_words():
    patterns = sequence(9)
    names = [next(patterns).name for _ in range(2 * 66 + 3)]
    assert names[:5] == [
        "address", "inverted address", "random, seed 9", "inverted random, seed 9",
        "walking one, step 0",
    ]  # fmt: skip
    assert names[-1] == "random, seed 10"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_right_products_agree_with_their_sums_and_repeat(dtype):
    products = Products(DEVICE, dtype, size=128, seed=1, multiply=multiply)
    products.batch(3, while_busy=lambda: None)
    report = products.report()
    assert (report.products, report.wrong_products, report.detail) == (4, 0, "")
    assert report.residual <= report.bound
    assert len(report.tflops) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_product_that_differs_from_the_first_is_found(dtype):
    tally = Tally(multiply, 3, wrong_once)
    products = Products(DEVICE, dtype, size=128, seed=1, multiply=tally)
    products.batch(4, while_busy=lambda: None)
    report = products.report()
    assert report.wrong_products == 1
    assert "1 of 4 products differ from the first" in report.detail


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_that_are_all_wrong_alike_are_found_by_their_sums(dtype):
    def shifted(a, b, out):
        torch.mm(a, b, out=out)
        out[40:72] = out[40:72].roll(1, dims=0)

    products = Products(DEVICE, dtype, size=128, seed=1, multiply=shifted)
    report = products.report()
    assert report.wrong_products == 1
    assert report.residual > report.bound
    assert "the first product is off" in report.detail


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_that_are_all_infinite_are_found(dtype):
    products = Products(
        DEVICE, dtype, size=128, seed=1, multiply=lambda a, b, out: out.fill_(torch.inf)
    )
    products.batch(2, while_busy=lambda: None)
    report = products.report()
    assert (report.wrong_products, report.residual) == (1, torch.inf)


def test_a_healthy_device_is_healthy():
    result = run(BurnInOptions(seconds=1, memory_percent=1, seed=5))
    assert (result.metrics["healthy"], result.verified, result.metrics["findings"]) == (
        True,
        True,
        "",
    )
    assert result.metrics["memory_passes"] >= 7
    assert "healthy, " in result.headline


def test_the_verdict_names_sensors_that_cannot_be_read():
    gpu = Device(torch.device("cuda", 0), "NVIDIA H200")
    observed = Observed(compute={"bfloat16": ComputeReport(1, 0, 0.0, 0.0, (600.0,))})
    why = "none: the Python package nvidia-ml-py is not installed"
    result = summarise(gpu, observed, [], basis="measured", sensors=why, seconds=1)
    assert result.headline == "healthy, 600.0 TFLOP/s, sensors not read"
    assert result.metrics["sensors"] == why


def test_a_flipped_bit_in_memory_makes_the_device_unhealthy():
    result = unhealthy(touch=Tally(lambda blocks: None, 2, flip(bit=63, place=77)))
    assert (result.metrics["suspect"], result.metrics["wrong_words"]) == ("memory", 1)
    assert "bit 63 flipped" in result.metrics["findings"]
    assert not result.verified


@pytest.mark.parametrize("limit", [None, 1])
def test_what_came_back_wrong_is_not_verified_where_its_limit_lets_it_pass(limit):
    flipped = Tally(lambda blocks: None, 2, flip(bit=63, place=77))
    limits = {"max_wrong_words": limit, "min_steady_ratio": None}
    result = run(replace(LITTLE, limits=limits), Instruments(touch=flipped))
    assert (result.metrics["healthy"], result.metrics["wrong_words"]) == (True, 1)
    assert not result.verified


def test_a_bit_that_flips_while_products_are_computed_is_found():
    class LastTouch:
        """The last writing is the one that must outlast the products."""

        blocks = None

        def __call__(self, blocks):
            self.blocks = blocks

    touch = LastTouch()

    def disturb(a, b, out):
        torch.mm(a, b, out=out)
        if touch.blocks is not None:
            touch.blocks[0][9] = 1

    result = unhealthy(touch=touch, multiply=disturb)
    assert (result.metrics["suspect"], result.metrics["wrong_words"]) == ("memory", 1)
    assert "random, seed 5: byte 0x48" in result.metrics["findings"]


def test_a_wrong_product_makes_the_device_unhealthy():
    result = unhealthy(multiply=Tally(multiply, 6, wrong_once))
    assert result.metrics["suspect"] == "compute"
    assert result.headline.startswith("unhealthy: compute")


def test_a_slow_copy_makes_the_device_unhealthy():
    def slow(to, source):
        to.copy_(source)
        time.sleep(0.03)

    options = BurnInOptions(seconds=1, memory_percent=1, limits={"min_device_copy_gb_per_s": 5000})
    with pytest.raises(WrongResult, match="bandwidth: min_device_copy_gb_per_s is 5000") as caught:
        run(options, Instruments(copy=slow))
    assert caught.value.result.metrics["suspect"] == "bandwidth"
    assert caught.value.result.verified


def test_a_copy_that_arrives_changed_makes_the_device_unhealthy():
    def wrong(to, source):
        to.copy_(source)
        to[17] += 1

    result = unhealthy(copy=wrong)
    assert "max_changed_copies is 0, measured 3 (device_copy" in result.metrics["findings"]


def test_a_device_that_fails_is_unhealthy_and_its_observations_are_reported():
    def fail(a, b, out):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore")

    result = unhealthy(multiply=fail)
    assert "CUDA error: uncorrectable ECC error encountered)" in result.metrics["findings"]
    assert result.metrics["device_copy_gb_per_s"] > 0
    assert not result.verified


def test_an_error_of_the_program_is_no_finding():
    def fail(a, b, out):
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        run(LITTLE, Instruments(multiply=fail))


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="a CPU has no sensors")
def test_heat_and_new_errors_make_the_device_unhealthy():
    class Feverish:
        source = "a test"

        def __init__(self, uuid):
            self.asked = 0

        def sample(self):
            return Sample(temperature_c=99, slowdowns=Slowdowns(heat=True, board=False))

        def counters(self):
            self.asked += 1
            return {"uncorrected_ecc_errors": self.asked}

        def xids(self):
            return [79]

    result = unhealthy(sensors=Feverish)
    assert result.metrics["suspect"] == "thermal,errors"
    assert "max_xids is 0, measured 1 (79)" in result.metrics["findings"]


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="a CPU takes what it gets")
def test_a_gpu_with_no_free_memory_is_out_of_memory():
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free - 2**29, dtype=torch.uint8, device="cuda")
    with pytest.raises(OutOfMemory), memory_errors("a burn-in"):
        run(LITTLE)
    del held
    torch.cuda.empty_cache()


def measured_among(speed, index, workers, port):
    own = Peer("NVIDIA X", {"min_gemm_tflops": speed})
    gang = Gang(workers=workers, index=index, port=port)
    peers = exchange(own, gang, wait_seconds=20)
    return limits_from(peers, "NVIDIA X").get("min_gemm_tflops")


def test_workers_tell_one_another_their_speeds_and_the_slow_one_is_below_its_limit(port):
    speeds = [100.0, 50.0, 102.0, 98.0]
    with ThreadPoolExecutor(4) as pool:
        limits = list(
            pool.map(lambda index: measured_among(speeds[index], index, 4, port), range(4))
        )
    slow = [speed < limit for speed, limit in zip(speeds, limits, strict=True)]
    assert slow == [False, True, False, False]


def test_a_worker_that_does_not_come_is_left_out(port):
    own = Peer("NVIDIA X", {})
    assert exchange(own, Gang(workers=2, index=0, port=port), wait_seconds=1) == []


@pytest.mark.parametrize("others", [[], ["NVIDIA X"], ["NVIDIA X", "NVIDIA Y"]])
def test_fewer_than_two_others_of_its_model_are_no_measure(others):
    peers = [Peer(model, {"min_gemm_tflops": 1.0}) for model in others]
    assert limits_from(peers, "NVIDIA X") == {}


def test_a_gpu_without_a_speed_limit_is_not_reported_as_judged():
    unknown = Device(torch.device("cuda"), "NVIDIA X")
    report = ComputeReport(
        products=1, wrong_products=0, residual=0.0, bound=0.0, tflops=(80.0,), detail=""
    )
    observed = Observed(compute={"bfloat16": report}, samples=[Sample()])
    result = summarise(unknown, observed, [], basis="unjudged", sensors="nvml", seconds=1)
    assert result.headline == "healthy, 80.0 TFLOP/s, speed unjudged"
    assert result.metrics["speed_limits"] == "unjudged"
