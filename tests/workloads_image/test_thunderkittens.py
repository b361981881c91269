# SPDX-License-Identifier: Apache-2.0
"""The thunderkittens workload: what it does without a GPU, and that its checks see what is wrong.

Its sources are compiled here where TK_ROOT names ThunderKittens; no other test needs it.
"""

import contextlib
import os
from pathlib import Path

import pytest
import torch

from gpupack_workloads.attention.checks import CheckSpec
from gpupack_workloads.cuda_compiler import Build, NoCudaLibrary, Nvrtc, choose_compiler
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.results import encode
from gpupack_workloads.thunderkittens import ThunderKittensOptions, run, session
from gpupack_workloads.thunderkittens.implementations import TileAttention, TileGemm, operand_of
from gpupack_workloads.thunderkittens.kernels import ARCH, HOPPER, SOURCES, compiled, root_of
from gpupack_workloads.thunderkittens.programs import OURS

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != HOPPER,
    reason="needs a Hopper GPU",
)
headers = pytest.mark.skipif("TK_ROOT" not in os.environ, reason="TK_ROOT names no ThunderKittens")
CPU = Device(torch.device("cpu"), "CPU")


@no_gpu
def test_without_gpu_and_headers_tritons_kernels_are_checked_and_the_rest_is_left_out(monkeypatch):
    monkeypatch.delenv("TK_ROOT", raising=False)
    result = run(ThunderKittensOptions(size=64, length=40))
    assert (result.headline, result.verified) == ("none compiled (simulated)", True)
    ours = [row for row in result.rows if row["by"] == OURS]
    assert [row["compiled"] for row in ours] == [False, False]
    assert all("TK_ROOT is not set" in str(row["left_out"]) for row in ours)
    assert result.metrics["gemm_triton_lines"] < result.metrics["gemm_thunderkittens_lines"]
    assert not [name for name in result.metrics if name.endswith(("tflops", "ratio"))]
    assert len(encode(result)) < 1500


@no_gpu
def test_a_compiler_that_is_asked_for_needs_the_headers(monkeypatch):
    monkeypatch.delenv("TK_ROOT", raising=False)
    with pytest.raises(BadArgument, match="TK_ROOT is not set"):
        run(ThunderKittensOptions(size=64, length=40, compiler="nvrtc"))


@no_gpu
def test_what_does_not_fit_is_refused_before_any_work():
    with pytest.raises(OutOfMemory, match="a product of 1048576 x 1048576 matrices, and attention"):
        run(ThunderKittensOptions(size=2**20))


def test_a_gpu_that_is_no_hopper_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 0))
    gpu = Device(torch.device("cuda", 0), "NVIDIA B200")
    with pytest.raises(NoSuchDevice, match=r"for sm_90a, .*: NVIDIA B200 has compute cap.* 10\.0"):
        session.measure(gpu, ThunderKittensOptions())


def test_nvrtc_finds_headers_that_a_build_brings(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "scale.h").write_text("constexpr float scale = std::SCALE;\n")
    source = tmp_path / "mine.cu"
    source.write_text(
        '#include <few>\n#include "scale.h"\n__global__ void mine(float *a) { *a = scale; }'
    )
    build = Build(
        standard="c++20",
        folders=(tmp_path / "folder",),
        options=("-DSCALE=two",),
        nvrtc_headers={"few": "namespace std { constexpr float two = 2; }"},
    )
    assert Nvrtc().compile(source, "sm_90", build).startswith(b"\x7fELF")
    with pytest.raises(BadArgument, match="cannot open source file"):
        Nvrtc().compile(source, "sm_90")


@contextlib.contextmanager
def cudas_library():
    """Skip a test where a compiler does not find CUDA's C++ library."""
    try:
        yield
    except NoCudaLibrary as error:
        pytest.skip(str(error).splitlines()[-1])


def compiled_by(compiler, *sources):
    """Compile; skip the test where the compiler, or what it needs, is not there."""
    try:
        chosen = choose_compiler(compiler)
    except BadArgument as error:
        pytest.skip(str(error))
    with cudas_library():
        return [compiled(source, chosen, root_of(os.environ)) for source in sources]


@headers
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_source_compiles_without_a_gpu_by_either_compiler(source, compiler):
    (code,) = compiled_by(compiler, source)
    assert code.cubin.startswith(b"\x7fELF")


@headers
@no_gpu
def test_without_a_gpu_the_sources_are_compiled_for_hopper():
    with cudas_library():
        result = run(ThunderKittensOptions(size=64, length=40))
    assert result.headline == f"2 source(s) compiled for {ARCH} (simulated)"


class Compiler:
    """One that cannot, or makes nothing but the kernels' names."""

    def __init__(self, name, *, able):
        self.name, self._able = name, able

    def compile(self, path, arch, build):
        if not self._able:
            raise BadArgument("it lacks headers")
        return b"".join(f".text.{entry}\0".encode() for each in SOURCES for entry in each.entries)


def test_a_compiler_that_was_not_chosen_may_fail(monkeypatch):
    nvcc, nvrtc = Compiler("nvcc 13.0", able=True), Compiler("NVRTC 13.0", able=False)
    found = {"nvcc": nvcc, "nvrtc": nvrtc}
    monkeypatch.setattr(session, "choose_compiler", found.__getitem__)
    assert list(session.by_compilers(SOURCES[0], nvcc, Path("/tk"))) == ["nvcc 13.0"]
    with pytest.raises(BadArgument, match="lacks headers"):
        session.by_compilers(SOURCES[0], nvrtc, Path("/tk"))


def test_a_tensor_is_described_in_four_dimensions():
    assert operand_of(torch.empty(3, 64)).shape == (1, 1, 3, 64)
    assert operand_of(torch.empty(5, 4, 3, 128)).shape == (5, 4, 3, 128)


def product(a, b, c):
    torch.matmul(a, b, out=c)


def wrong_corner(a, b, c):
    product(a, b, c)
    c[-1, -1] += 1


def left_out(a, b, c):
    product(a, b, c)
    c[-1, 0] = torch.nan


def beyond(a, b, c):
    product(a, b, c)
    c.as_strided((1,), (1,), c.storage_offset() + c.numel()).fill_(0)


class StandIn:
    """What computes on a CPU in a kernel's place."""

    def __init__(self, into):
        self.into = into


@pytest.fixture
def without_waiting(monkeypatch):
    """Lets what waits for a GPU run where there is none."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.parametrize(
    ("into", "message"),
    [
        (wrong_corner, r"gemm \(1, 64, 64\) by thunderkittens is wrong by"),
        (left_out, "is wrong by inf"),
        (beyond, r"gemm \(1, 64, 64\): memory around the result has changed"),
    ],
)
@pytest.mark.usefixtures("without_waiting")
def test_one_element_of_a_product_that_is_wrong_missing_or_outside_is_refused(into, message):
    session.check_ragged_products(StandIn(product), CPU, seed=1)
    with pytest.raises(WrongResult, match=message):
        session.check_ragged_products(StandIn(into), CPU, seed=1)


def attend(qkv, o, *, causal):
    q, k, v = (x.float() for x in qkv)
    o.copy_(
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    )


def forgets_the_mask(qkv, o, *, causal):
    del causal
    attend(qkv, o, causal=False)


def forgets_a_row(qkv, o, *, causal):
    attend(qkv, o, causal=causal)
    o[-1, -1, -1] = 0


@pytest.mark.parametrize("into", [forgets_the_mask, forgets_a_row])
@pytest.mark.usefixtures("without_waiting")
def test_attention_that_is_wrong_in_a_mask_or_a_row_is_refused(monkeypatch, into):
    monkeypatch.setattr(session, "RAGGED_HEADS", ((2, 1, 70, 70), (2, 2, 3, 80)))
    session.check_ragged_heads(StandIn(attend), CPU, seed=2)
    with pytest.raises(WrongResult, match="by thunderkittens is wrong by"):
        session.check_ragged_heads(StandIn(into), CPU, seed=2)


def test_one_implementation_that_is_wrong_among_several_is_named():
    inputs = session.sequences((2, 2, 50, 50), 1, torch.float32, CPU, seed=0)
    right = torch.empty_like(inputs.q)
    attend(inputs.qkv, right, causal=True)
    wrong = right.detach().clone()
    wrong[0, 1, 20, 5] += 0.1
    question = CheckSpec(causal=True)
    assert session.outputs_agree({"a": right.detach()}, inputs, question, "causal").holds
    with pytest.raises(WrongResult, match="causal by b is wrong by 1"):
        session.outputs_agree({"a": right.detach(), "b": wrong}, inputs, question, "causal")


def test_short_sequences_are_not_so_many_that_checking_takes_an_hour():
    assert [session.batch_of(length) for length in (1, 512, 4096, 2**17)] == [32, 32, 4, 1]


def test_ratios_and_speeds_are_of_the_same_turns():
    timed = session.Timed(
        name="gemm_64",
        operations=2e12,
        seconds={OURS: 0.004, "cublas": 0.003},
        agreement=session.Agreement(0.1, 0.2),
    )
    ours, cublas = timed.rows()
    assert (ours["tflops"], ours["thunderkittens_ratio"]) == (500.0, 1.0)
    assert (cublas["tflops"], cublas["thunderkittens_ratio"]) == (666.67, 0.75)
    attention = session.Timed(
        name="full_64",
        operations=1e12,
        seconds={OURS: 0.002, "cudnn": 0.002},
        agreement=timed.agreement,
    )
    code = session.code_rows({}, Named(), {("gemm", "triton"): 1.5})
    result = session.summarise(CPU, [timed, attention], code, Named())
    assert result.headline == "500.0 TFLOP/s GEMM, 500.0 attention"
    assert result.metrics["gemm_64_cublas_ratio"] == 0.75
    assert result.metrics["gemm_triton_compile_seconds"] == 1.5


class Named:
    name = "nvcc 13.0"


@pytest.mark.gpu
@hopper
@headers
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_a_gpu_computes_every_shape_by_either_compiler(compiler):
    gemm, attention = compiled_by(compiler, *SOURCES)
    gpu = Device(torch.device("cuda", 0), "GPU")
    torch.cuda.synchronize()
    session.check_ragged_products(TileGemm(gemm), gpu, seed=5)
    session.check_ragged_heads(TileAttention(attention), gpu, seed=5)


@pytest.mark.gpu
@hopper
@headers
def test_a_gpu_compares_all_languages_in_one_run():
    result = run(ThunderKittensOptions(size=1024, length=1024, heads=4, seed=3))
    assert (result.verified, result.simulated) == (True, False)
    timed = [row for row in result.rows if "tflops" in row]
    assert [row["by"] for row in timed[:4]] == ["thunderkittens", "gluon", "triton", "cublas"]
    assert len(timed) == 12
    assert result.metrics["attention_gluon_compile_seconds"] > 0
    assert len(encode(result)) < 4096


@pytest.mark.gpu
@hopper
def test_a_gpu_without_the_headers_is_a_bad_argument(monkeypatch, tmp_path):
    monkeypatch.setenv("TK_ROOT", str(Path(tmp_path)))
    with pytest.raises(BadArgument, match="where there is no include/kittens"):
        run(ThunderKittensOptions(size=1024))
