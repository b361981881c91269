# SPDX-License-Identifier: Apache-2.0
"""The p2p-cpp workload: its kernels compile, its checks see what is wrong, its streams wait."""

import ctypes
import logging
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
import torch
from click.testing import CliRunner

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import cuda_stand_in
from cuda_stand_in import Kernels, StandIn

from gpupack_kernels.communication.peer import launch as triton_kernels
from gpupack_workloads import cuda_compiler
from gpupack_workloads.cli import main
from gpupack_workloads.cuda_api import Refused, check_status, load
from gpupack_workloads.cuda_compiler import Nvrtc, choose_compiler
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.p2p_cpp import (
    SOURCE,
    P2pCppOptions,
    access,
    latency,
    run,
    runtime,
    session,
    sides,
    speeds,
    ways,
)
from gpupack_workloads.p2p_cpp.checks import CopyBuffers, buffer_bytes, check_edges
from gpupack_workloads.p2p_cpp.kernels import SIGNATURES, compile_kernels
from gpupack_workloads.p2p_cpp.simulated import in_pieces, whole
from gpupack_workloads.p2p_cpp.staging import Staging
from gpupack_workloads.p2p_cpp.summary import ratios, summarise
from gpupack_workloads.results import encode

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
GPU = Device(torch.device("cuda", 0), "GPU")
HOPPER = (9, 0)


@pytest.fixture
def mine(tmp_path):
    """Writes our source with something else in one place; returns its file."""

    def mine(ours, instead):
        text = SOURCE.read_text()
        assert ours in text
        path = tmp_path / "mine.cu"
        path.write_text(text.replace(ours, instead))
        return path

    return mine


@pytest.mark.parametrize("capability", [(8, 0), HOPPER, (12, 0)])
def test_the_kernels_compile_by_nvrtc_which_needs_no_gpu(capability):
    assert compile_kernels(Nvrtc(), SOURCE, capability).startswith(b"\x7fELF")


def test_an_error_in_a_source_is_reported_with_its_file_and_line_and_status_2(mine, caplog):
    path = mine("*done = at;", "*done = missing;")
    line = 1 + path.read_text().splitlines().index("    *done = missing;")
    ended = CliRunner().invoke(main, ["p2p-cpp", "--compiler=nvrtc", f"--source={path}"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert f'{path}({line}): error: identifier "missing" is undefined' in caplog.text


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_a_source_without_one_of_the_kernels_is_refused(mine, signature):
    path = mine(f"{signature.name}(", f"not_{signature.name}(")
    with pytest.raises(BadArgument, match=rf"has no kernel .* void {signature.name}\("):
        compile_kernels(Nvrtc(), path, HOPPER)


@no_gpu
def test_without_a_gpu_the_kernels_are_compiled_and_no_speed_is_reported():
    result = run(P2pCppOptions(size=5000, seed=2, compiler="nvrtc"))
    assert (result.headline, result.verified, result.simulated) == (
        "4 kernels compiled for sm_90 (simulated)",
        True,
        True,
    )
    assert (result.metrics["size_bytes"], result.metrics["wrong_bytes"]) == (4992, 0)
    assert not [name for name in result.metrics if name.endswith(("_gb_per_s", "_us", "_ratio"))]


@no_gpu
def test_without_gpu_and_compiler_the_result_says_so_but_a_source_is_refused(monkeypatch):
    def none(name):
        raise BadArgument("there is no NVRTC")

    monkeypatch.setattr(cuda_compiler, "choose_compiler", none)
    assert run(P2pCppOptions(size=4096)).headline == "no compiler, none compiled (simulated)"
    with pytest.raises(BadArgument, match="there is no NVRTC"):
        run(P2pCppOptions(size=4096, source=SOURCE))


def without_last(target, source):
    target[:-1].copy_(source[:-1])


def one_further(target, source):
    target.copy_(source)
    target.as_strided((1,), (1,), target.storage_offset() + target.numel()).fill_(0)


def one_before(target, source):
    target.copy_(source)
    target.as_strided((1,), (1,), target.storage_offset() - 1).fill_(0)


def shifted(target, source):
    target.copy_(source.roll(1))


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (without_last, "of 1 bytes 1 arrived wrongly, 0 around them changed"),
        (one_further, "of 1 bytes 0 arrived wrongly, 1 around them changed"),
        (one_before, "0 arrived wrongly, 1 around"),
        (shifted, "of 15 bytes 15 arrived wrongly"),
    ],
)
def test_a_byte_that_is_missing_misplaced_or_outside_the_target_is_refused(copy, message):
    buffers = [torch.empty(buffer_bytes(1), dtype=torch.uint8) for _ in range(2)]
    assert check_edges("right", whole, buffers, seed=1) == check_edges(
        "in pieces", in_pieces, buffers, seed=1
    )
    with pytest.raises(WrongResult, match=f"a copy, from and to .* beyond a boundary: .*{message}"):
        check_edges("a copy", copy, buffers, seed=1)


def test_copy_buffers_begin_at_the_given_offsets():
    memory = torch.empty(2 * buffer_bytes(64) + 256, dtype=torch.uint8)
    start = -memory.data_ptr() % 16
    out, into = memory[start:].split((buffer_bytes(64), memory.numel() - start - buffer_bytes(64)))
    beyond = into.data_ptr() % 16
    lane = CopyBuffers.within(out, into, 5, (3, 7))
    assert (lane.source.data_ptr() % 16, (lane.target.data_ptr() - beyond) % 16) == (3, 7)
    assert (lane.source.numel(), lane.target.numel()) == (5, 5)


@pytest.fixture
def cuda(monkeypatch):
    """Takes a stand-in for CUDA's runtime."""

    def cuda(**how):
        stand_in = StandIn(**how)
        cuda_stand_in.install(monkeypatch, stand_in)
        return stand_in

    return cuda


def test_access_is_enabled_both_ways_and_disabled_again(cuda):
    stand_in = cuda()
    with access.peer_access(0, 1):
        assert stand_in.enabled == {(0, 1), (1, 0)}
    assert stand_in.enabled == set()
    assert [call[0] for call in stand_in.calls] == ["enable"] * 2 + ["disable"] * 2


def test_access_that_another_library_has_enabled_stays(cuda):
    stand_in = cuda()
    stand_in.enabled.add((1, 0))
    with access.peer_access(0, 1):
        assert len(stand_in.enabled) == 2
    assert stand_in.enabled == {(1, 0)}


def test_a_gpu_needs_no_access_to_itself(cuda):
    stand_in = cuda(reachable=())
    assert access.both_can_access(0, 0)
    with access.peer_access(0, 0):
        assert stand_in.calls == []


def test_access_is_disabled_after_an_error_and_the_error_is_reported(cuda, caplog):
    stand_in = cuda()

    def fault():
        with access.peer_access(0, 1):
            # As after a fault of a kernel: nothing can be given back any more.
            stand_in.enabled.clear()
            raise WrongResult("a byte")

    with caplog.at_level(logging.WARNING), pytest.raises(WrongResult, match="a byte"):
        fault()
    assert [call[0] for call in stand_in.calls][2:] == ["disable"] * 2
    assert "cudaErrorPeerAccessNotEnabled" in caplog.text


def test_access_that_cannot_be_enabled_is_an_error_and_what_was_enabled_is_not_left(cuda):
    stand_in = cuda()
    right = stand_in.cudaDeviceEnablePeerAccess

    def refuse(owner, flags):
        return right(owner, flags) if owner else (cuda_stand_in.Status(2),)

    stand_in.cudaDeviceEnablePeerAccess = refuse
    with pytest.raises(Refused, match="cudaErrorMemoryAllocation"), access.peer_access(0, 1):
        pytest.fail("there is no access")
    assert stand_in.enabled == set()


def test_memory_that_is_not_there_is_out_of_memory(cuda):
    stand_in = cuda()
    stand_in.cudaMalloc = lambda size: (cuda_stand_in.Status(2), None)
    with pytest.raises(OutOfMemory, match=r"no memory for 77 bytes on GPU 1: set a smaller"):
        runtime.Memory(1, 77)


@pytest.mark.parametrize("seed", range(8))
def test_the_way_through_the_host_is_right_in_whatever_order_streams_come_to_their_work(cuda, seed):
    stand_in = cuda(seed=seed)
    source = torch.randint(0, 250, (1_500_001,), dtype=torch.uint8)
    target = torch.zeros_like(source)
    with ExitStack() as stack:
        out, into = (runtime.Stream(device) for device in (0, 1))
        staging = Staging(stack, out, into, source.numel())
        for _ in range(2):
            staging.copy(target, source)
        # What is overwritten once all is done changes nothing; before, it would.
        into.synchronize()
        staging.spoil()
        assert torch.equal(target, source)
    assert stand_in.memory == {}


@pytest.mark.parametrize("missing", ["_filled", "_emptied"])
def test_without_one_of_its_waits_the_way_through_the_host_is_wrong(cuda, missing):
    def goes_wrong(seed):
        cuda(seed=seed)
        source = torch.randint(0, 250, (1_500_001,), dtype=torch.uint8)
        target = torch.zeros_like(source)
        with ExitStack() as stack:
            out, into = (runtime.Stream(device) for device in (0, 1))
            staging = Staging(stack, out, into, source.numel())
            for event in getattr(staging, missing):
                event.record = lambda stream: None
            staging.copy(target, source)
            for stream in (out, into):
                stream.synchronize()
        return not torch.equal(target, source)

    assert any(goes_wrong(seed) for seed in range(8))


@pytest.fixture
def pair(cuda, monkeypatch):
    """Opens two GPUs of a stand-in, whose kernels copy as memmove does."""

    def pair(stack, numbers=(0, 1), **how):
        stand_in = cuda(**how)

        def triton_copy(target, source):
            # Triton's launch asks torch for the stream: that of the timed way.
            ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)

        monkeypatch.setattr(triton_kernels, "copy", triton_copy)
        kernels = dict.fromkeys(numbers, Kernels(stand_in))
        return stack.enter_context(sides.open_pair(*numbers, kernels=kernels, size=2**17))

    return pair


SPEEDS = {"memcpy", "loads", "stores", "host", "triton_loads", "triton_stores"}
BOTH = {"memcpy_both", "loads_both", "stores_both"}


@pytest.mark.parametrize(
    ("numbers", "reachable", "names"),
    [
        ((0, 1), ((0, 1), (1, 0)), SPEEDS | BOTH),
        ((0, 1), ((0, 1),), {"memcpy", "host", "memcpy_both"}),
        ((0, 0), (), SPEEDS),
    ],
    ids=["two GPUs", "access one way only", "one GPU"],
)
def test_every_way_that_a_pair_has_is_checked_and_timed_at_every_size(
    pair, monkeypatch, numbers, reachable, names
):
    monkeypatch.setattr(speeds, "ROUNDS", 1)
    with ExitStack() as stack:
        opened = pair(stack, numbers, seed=3, reachable=reachable)
        rows, checked = speeds.measure(opened, 2**17, seed=4)
    assert [row["bytes"] for row in rows] == [2**12, 2**16, 2**17]
    for row in rows:
        assert {name.removesuffix("_gb_per_s") for name in row if name.endswith("s")} - {
            "bytes"
        } == names
    assert checked > sum(row["bytes"] for row in rows) * len(names)


def test_a_way_that_goes_wrong_while_it_is_timed_is_refused(pair, monkeypatch):
    monkeypatch.setattr(speeds, "check_way", lambda *_: 0)
    right = ways.copy_to_peer
    monkeypatch.setattr(
        ways,
        "copy_to_peer",
        lambda *addresses, count, stream: right(*addresses, count=count - 1, stream=stream),
    )
    with (
        ExitStack() as stack,
        pytest.raises(WrongResult, match=r"by memcpy, as it was timed: of \d+ bytes 1 arr"),
    ):
        speeds.measure(pair(stack), 4096, seed=4)


PAIR = {
    "source": 0,
    "target": 1,
    "same_gpu": False,
    "link": "NV18",
    "numa": "0-0",
    "peer_access": True,
    "checked_bytes": 10,
    "latency_us": 0.7,
    "triton_latency_us": 0.8,
    "load_us": 1.4,
}
TIMED = {
    "bytes": 4096,
    "memcpy_gb_per_s": 390.0,
    "loads_gb_per_s": 370.0,
    "stores_gb_per_s": 380.0,
    "host_gb_per_s": 39.0,
    "triton_loads_gb_per_s": 370.0,
    "triton_stores_gb_per_s": 190.0,
    "memcpy_both_gb_per_s": 780.0,
}


def summary(*rows):
    timed = [row | ratios(row) for row in rows if "bytes" in row]
    facts = [row for row in rows if "bytes" not in row]
    return summarise(GPU, [*facts, *timed], largest=4096, facts={"size_bytes": 4096})


def test_the_slowest_pair_is_the_result_and_ratios_are_of_one_run():
    slow = TIMED | {"stores_gb_per_s": 195.0}
    result = summary(PAIR, TIMED, PAIR | {"latency_us": 0.9}, slow, TIMED | {"bytes": 64})
    assert result.headline == "390.0 GB/s, stores 195.0, loads 370.0, 2 pair(s)"
    assert (result.verified, result.metrics["stores_memcpy_ratio"]) == (True, 0.5)
    assert (result.metrics["memcpy_host_ratio"], result.metrics["latency_us"]) == (10.0, 0.9)
    assert result.metrics["memcpy_both_ratio"] == 2.0
    assert result.metrics["stores_triton_ratio"] == pytest.approx(195 / 190, abs=1e-4)
    assert "swap_us" not in result.metrics
    assert len(encode(result)) < 2500


def test_pairs_without_access_have_no_loads_and_stores_and_nothing_is_said_to_be_verified():
    facts = {name: PAIR[name] for name in list(PAIR)[:7]} | {"peer_access": False}
    timed = {name: TIMED[name] for name in ("bytes", "memcpy_gb_per_s", "host_gb_per_s")}
    result = summary(facts, timed)
    assert (result.verified, result.headline) == (
        False,
        "no peer access; 390.0 GB/s by memcpy, 1 pair(s)",
    )
    assert not [name for name in result.metrics if name.startswith(("loads", "stores", "lat"))]
    assert result.metrics["pairs_without_access"] == 1


def test_one_gpu_with_itself_is_marked_as_such():
    result = summary(PAIR | {"same_gpu": True, "target": 0, "peer_access": False}, TIMED)
    assert result.headline == "390.0 GB/s within one GPU, there is no other"
    assert (result.verified, result.metrics["same_gpu"]) == (True, True)
    assert session.pairs(1) == [(0, 0)]
    assert session.pairs(3) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


def opened(stack, size=2**20):
    """The pair (0, 1) of this machine's GPUs, or its one GPU with itself."""
    numbers = session.pairs(torch.cuda.device_count())[0]
    kernels = session.load_kernels(session.gpus_of([numbers]), choose_compiler(None), SOURCE)
    return stack.enter_context(sides.open_pair(*numbers, kernels=kernels, size=size))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_every_pair_is_measured_and_every_byte_right(compiler):
    try:
        choose_compiler(compiler)
    except BadArgument as error:
        pytest.skip(str(error))
    result = run(P2pCppOptions(size=2**24 + 5, seed=3, compiler=compiler))
    count = torch.cuda.device_count()
    numbers = session.pairs(count)
    facts = [row for row in result.rows if "peer_access" in row]
    timed = [row for row in result.rows if "bytes" in row]
    assert [(row["source"], row["target"]) for row in facts] == numbers
    assert [row["bytes"] for row in timed] == [2**12, 2**16, 2**20, 2**24] * len(numbers)
    assert (result.simulated, result.metrics["same_gpu"]) == (False, count == 1)
    assert result.metrics["wrong_bytes"] == 0
    if result.metrics["pairs_without_access"]:
        pytest.skip("there are GPUs without access to each other")
    assert result.verified
    speeds_of = [f"{name}_gb_per_s" for name in (SPEEDS if count == 1 else SPEEDS | BOTH)]
    assert all(row[name] > 0 for row in timed for name in speeds_of)
    assert all(row[name] > 0 for row in facts for name in ("latency_us", "load_us"))
    assert 0 < result.metrics["latency_us"] < 1000
    assert len(encode(result)) < 4096


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["memcpy", "loads", "stores", "host"])
def test_every_way_copies_any_size_from_and_to_any_address(name):
    with ExitStack() as stack:
        pair = opened(stack)
        if not pair.direct and name in ("loads", "stores"):
            pytest.skip("no peer access")
        there = ways.ways_of(pair.source, pair.target, direct=pair.direct)
        staging = Staging(stack, pair.source.stream, pair.target.stream, 2**20)
        there["host"] = ways.through_host(pair.target, staging)
        assert speeds.check_way(pair, there[name], seed=7) > 7_000_000


@pytest.mark.gpu
@needs_gpu
def test_a_number_that_is_not_sent_back_ends_the_wait():
    def alone(side, peer, *, rounds, leads):
        if leads:
            latency.by_cpp(side, peer, rounds=rounds, leads=leads)

    with ExitStack() as stack:
        pair = opened(stack)
        if not pair.direct:
            pytest.skip("no peer access")
        assert latency.bounce(pair, latency.by_cpp, 100) > 0
        with pytest.raises(WrongResult, match="a number got lost in round 1 of 100"):
            latency.bounce(pair, alone, 100)


@pytest.mark.gpu
@needs_gpu
def test_both_streams_together_take_as_long_as_both_take():
    with ExitStack() as stack:
        pair = opened(stack)
        streams = speeds.Together(stack, pair.source.stream, pair.target.stream)
        pair.settle()
        pair.source.clock.start()
        streams.fork()
        speeds.head_start(pair.target)
        streams.join()
        assert pair.source.clock.stop() > 0.001


@pytest.mark.gpu
@two_gpus
def test_access_is_as_it_was_once_a_pair_is_closed():
    if not access.both_can_access(0, 1):
        pytest.skip("no peer access")
    was_off = access.enable(0, 1)
    if was_off:
        access.disable(0, 1)
    with access.peer_access(0, 1):
        assert not access.enable(0, 1)
    assert access.enable(0, 1) == was_off
    if was_off:
        access.disable(0, 1)


@pytest.mark.gpu
@two_gpus
def test_gpus_that_cannot_reach_each_other_are_copied_by_the_driver_and_the_host(monkeypatch):
    monkeypatch.setattr(sides, "both_can_access", lambda one, other: False)
    result = run(P2pCppOptions(size=2**22))
    assert (result.verified, result.metrics["wrong_bytes"]) == (False, 0)
    facts = [row for row in result.rows if "peer_access" in row]
    assert result.metrics["pairs_without_access"] == len(facts)
    assert all("cudaDeviceCanAccessPeer" in row["left_out"] for row in facts)
    assert "loads_gb_per_s" not in result.metrics
    assert result.metrics["memcpy_gb_per_s"] > 0


@pytest.mark.gpu
@two_gpus
def test_one_gpu_of_several_is_measured_with_itself_if_it_is_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    result = run(P2pCppOptions(size=2**22))
    assert (result.verified, result.metrics["same_gpu"]) == (True, True)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("ours", "instead", "message"),
    [
        ("if (threadIdx.x < count - tail)", "if (false)", "of .* bytes .* arrived wrongly"),
        ("kept += found == expected;", "kept += found != expected;", "swaps that found"),
        ("*done = turn - 1;", "*done = turn - 2;", "a number got lost"),
    ],
)
def test_kernels_of_the_users_that_are_wrong_are_a_wrong_result(mine, ours, instead, message):
    numbers = session.pairs(torch.cuda.device_count())
    if not access.both_can_access(*numbers[0]):
        pytest.skip("no peer access")
    with pytest.raises(WrongResult, match=message):
        run(P2pCppOptions(size=2**16, source=mine(ours, instead)))


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_of_the_users_with_other_parameters_is_refused(mine):
    path = mine(
        "copy_bytes(unsigned char *to, const unsigned char *from, unsigned long long count)",
        "copy_bytes(unsigned char *to, const unsigned char *from, unsigned count)",
    )
    with pytest.raises(BadArgument, match=r"copy_bytes takes parameters of \[8, 8, 4\] bytes"):
        run(P2pCppOptions(size=2**16, source=path))


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_of_the_users_that_faults_ends_with_status_2_and_says_so(mine):
    # By itself: after a fault a process can do nothing more with its GPU.
    path = mine(
        "if (threadIdx.x < head)", "*(volatile int *)8 = 1;\n        if (threadIdx.x < head)"
    )
    line = [sys.executable, "-m", "gpupack_workloads", "p2p-cpp", f"--source={path}"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "mine.cu: a kernel has failed on the GPU" in ended.stderr


@pytest.mark.gpu
@needs_gpu
def test_more_than_there_is_is_refused_before_any_work():
    with pytest.raises(OutOfMemory, match="set a smaller --size"):
        run(P2pCppOptions(size=2**40))


@pytest.mark.gpu
@needs_gpu
def test_memory_of_the_runtimes_is_the_same_memory_for_torch_and_is_given_back():
    free = torch.cuda.mem_get_info(0)[0]
    memory = runtime.Memory(0, 2**28)
    tensor = memory.tensor()
    assert (tensor.data_ptr(), tensor.numel(), tensor.device.index) == (memory.address, 2**28, 0)
    assert torch.cuda.mem_get_info(0)[0] <= free - 2**28
    memory.close()
    assert torch.cuda.mem_get_info(0)[0] > free - 2**27
    check_status(load("runtime").cudaGetLastError())
