# SPDX-License-Identifier: Apache-2.0
"""The cuda-matmul workload: its sources compile, and its checks see what is wrong."""

import subprocess
import sys

import pytest
import torch

from gpupack_workloads import cuda_compiler
from gpupack_workloads.cuda_compiler import NoCudaLibrary, Nvrtc, choose_compiler
from gpupack_workloads.cuda_matmul import STEPS, CudaMatmulOptions, run, session
from gpupack_workloads.cuda_matmul.kernels import compile_matmul
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.results import encode

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU = Device(torch.device("cpu"), "CPU")
FLOAT = STEPS[0]

# A thread per element, as it stands; what is left out, or wrong, a test puts in.
MINE = """
extern "C" __global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
    BODY
}
"""


@pytest.fixture
def mine(tmp_path):
    """Writes a kernel of the user's that ends so; returns its file."""

    def mine(body):
        path = tmp_path / "mine.cu"
        path.write_text(MINE.replace("BODY", body))
        return path

    return mine


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_compiles_by_nvrtc_which_needs_no_gpu(step, arch):
    assert Nvrtc().compile(step.path, arch).startswith(b"\x7fELF")


def test_tensor_cores_of_bfloat16_are_not_on_older_gpus():
    assert Nvrtc().compile(FLOAT.path, "sm_75")
    with pytest.raises(BadArgument, match=r"tensor_cores.cu\(\d+\): .* compute capability 8.0"):
        Nvrtc().compile(STEPS[-1].path, "sm_75")
    row = session.unable(STEPS[-1], (7, 5))
    assert row["left_out"] == (
        "tensor_cores needs compute capability 8.0: not on this GPU, which has 7.5"
    )


def test_an_architecture_that_the_compiler_does_not_know_is_a_bad_argument():
    with pytest.raises(BadArgument, match=r"for sm_10 by NVRTC [\d.]+:\n.*gpu-architecture"):
        Nvrtc().compile(FLOAT.path, "sm_10")


def test_an_error_in_a_source_is_reported_with_its_file_and_line_and_status_2(mine):
    path = mine("C[row * N + column] = missing;")
    line = [sys.executable, "-m", "gpupack_workloads", "cuda-matmul", "--compiler=nvrtc"]
    ended = subprocess.run([*line, f"--source={path}"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert f'{path}(7): error: identifier "missing" is undefined' in ended.stderr


def test_a_source_may_include_files_of_its_folder_and_cudas_header_of_bfloat16(mine):
    path = mine("C[row * N + column] = SCALE * sum;")
    (path.parent / "scale.h").write_text("#define SCALE 1\n")
    path.write_text('#include "scale.h"\n#include <cuda_bf16.h>\n' + path.read_text())
    assert Nvrtc().compile(path, "sm_90")


def test_a_source_without_the_kernel_is_refused(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text("__global__ void matmul(float *C) {}")
    with pytest.raises(BadArgument, match=r'mine.cu has no kernel extern "C" __global__ void matm'):
        compile_matmul(Nvrtc(), path, "sm_90")


@no_gpu
def test_without_a_gpu_all_steps_are_compiled_and_no_speed_is_reported():
    result = run(CudaMatmulOptions(size=70, compiler="nvrtc"))
    assert (result.headline, result.simulated) == (
        "4 kernel(s) compiled for sm_90 (simulated)",
        True,
    )
    assert [row["compiled"] for row in result.rows] == [True] * 4
    assert not [name for name in result.metrics if name.endswith(("tflops", "ratio"))]


@no_gpu
def test_without_gpu_and_compiler_the_result_says_so_but_a_source_is_refused(monkeypatch, mine):
    def none(name):
        raise BadArgument("there is no NVRTC")

    monkeypatch.setattr(cuda_compiler, "choose_compiler", none)
    assert run(CudaMatmulOptions(size=20)).headline == "no compiler, none compiled (simulated)"
    with pytest.raises(BadArgument, match="there is no NVRTC"):
        run(CudaMatmulOptions(size=20, source=mine("")))


def wrong_corner(a, b, c):
    session.stand_in(a, b, c)
    c[-1, -1] += 0.01


def left_out(a, b, c):
    session.stand_in(a, b, c)
    c[-1, 0] = torch.nan


def beyond(a, b, c):
    session.stand_in(a, b, c)
    c.as_strided((1,), (1,), c.storage_offset() + c.numel()).fill_(0)


@pytest.mark.parametrize(
    ("multiply", "message"),
    [
        (wrong_corner, r"naive: the product of \(1, 1\) and \(1, 1\) is wrong by 1.000e-02"),
        (left_out, "is wrong by inf"),
        (beyond, "memory around C has changed"),
    ],
)
def test_one_element_that_is_wrong_missing_or_outside_c_is_refused(multiply, message):
    with pytest.raises(WrongResult, match=message):
        session.check_edges(FLOAT, multiply, device=CPU, seed=1)


def test_a_product_that_goes_wrong_while_it_is_timed_is_refused():
    calls = []

    def tires(a, b, c):
        session.stand_in(a, b, c)
        calls.append(1)
        if len(calls) > 1:
            c[0, 0] += 1

    matrices = session.operands((64, 64, 64), "float32", device=CPU, seed=0)
    (found,) = session.in_turns({FLOAT: session.stand_in}, matrices, device=CPU)
    assert found.row()["cublas_ratio"] == found.ratio > 0
    with pytest.raises(WrongResult, match="naive, as it was timed"):
        session.in_turns({FLOAT: tires}, matrices, device=CPU)


@no_gpu
@pytest.mark.parametrize(("capability", "last"), [((9, 0), "bfloat16"), ((7, 5), "float32")])
def test_steps_that_a_gpu_cannot_run_are_left_out_and_the_others_compared_with_cublas(
    monkeypatch, capability, last
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(session, "loaded", lambda step, compiler, capability: session.stand_in)
    monkeypatch.setattr(session, "cublas", lambda a, b: a.float() @ b.float())
    result = session.measure(CPU, 50, CudaMatmulOptions(compiler="nvrtc"))
    assert f"TFLOP/s {last}" in result.headline
    assert ["left_out" in row for row in result.rows] == [False] * 3 + [last == "float32"]
    assert result.metrics["naive_cublas_ratio"] > 0
    assert ("tensor_cores_tflops" in result.metrics) == (last == "bfloat16")
    assert result.metrics["architecture"] == "sm_{}{}".format(*capability)
    assert len(encode(result)) < 1500


@no_gpu
@pytest.mark.parametrize("size", [17, 400])
def test_a_kernel_of_the_users_that_faults_at_the_timed_size_alone_is_a_bad_argument(
    monkeypatch, mine, size
):
    def faults(a, b, c):
        if a.shape[0] == size:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        session.stand_in(a, b, c)

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(session, "loaded", lambda step, compiler, capability: faults)
    path = mine("")
    message = r"mine.cu: a kernel has failed on the GPU: CUDA error: an illegal"
    with pytest.raises(BadArgument, match=message):
        session.measure(CPU, size, CudaMatmulOptions(compiler="nvrtc", source=path))
    with pytest.raises(RuntimeError):
        session.measure(CPU, size, CudaMatmulOptions(compiler="nvrtc"))


@no_gpu
def test_memory_that_runs_out_is_no_fault_of_the_users_kernel(monkeypatch, mine):
    def short(a, b, c):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(session, "loaded", lambda step, compiler, capability: short)
    with pytest.raises(torch.OutOfMemoryError):
        session.measure(CPU, 17, CudaMatmulOptions(compiler="nvrtc", source=mine("")))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_a_gpu_computes_every_step_that_it_has_and_compares_it_with_cublas(compiler):
    try:
        choose_compiler(compiler)
    except BadArgument as error:
        pytest.skip(str(error))
    result = run(CudaMatmulOptions(size=1024, seed=3, compiler=compiler))
    assert (result.verified, result.simulated) == (True, False)
    able = [step for step in STEPS if torch.cuda.get_device_capability() >= step.least]
    timed = [row for row in result.rows if "tflops" in row]
    assert [row["step"] for row in timed] == [step.name for step in able]
    assert all(row["cublas_ratio"] > 0 and row["error"] <= row["error_bound"] for row in timed)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("shape", [(1, 300, 2), (511, 8, 1000), (640, 1032, 72), (127, 255, 31)])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_gpu_multiplies_any_shape(monkeypatch, step, shape):
    gpu = Device(torch.device("cuda", 0), "GPU")
    capability = torch.cuda.get_device_capability()
    if capability < step.least:
        pytest.skip("not on this GPU")
    monkeypatch.setattr(session, "RAGGED", [shape])
    kernel = session.loaded(step, choose_compiler(None), capability)
    session.check_edges(step, kernel, device=gpu, seed=5)


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_of_the_users_is_checked_and_timed_as_ours_are(mine):
    result = run(CudaMatmulOptions(size=200, source=mine("C[row * N + column] = sum;")))
    assert (result.verified, [row["step"] for row in result.rows]) == (True, ["source"])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("C[row * N + column] = 1.01f * sum;", "source: the product of .* is wrong by"),
        ("if (row < M - 1) C[row * N + column] = sum;", "is wrong by inf"),
        ("C[row * N + column + 1] = sum;", "memory around C has changed"),
    ],
)
def test_a_kernel_of_the_users_that_is_wrong_is_a_wrong_result(mine, body, message):
    with pytest.raises(WrongResult, match=message):
        run(CudaMatmulOptions(size=200, source=mine(body)))


@pytest.mark.gpu
@needs_gpu
def test_what_the_driver_finds_of_a_kernel_is_compared_with_the_signature(mine):
    path = mine("C[row * N + column] = sum;")
    path.write_text(path.read_text().replace("int K)", "long long K)"))
    with pytest.raises(BadArgument, match=r"parameters of \[8, 8, 8, 4, 4, 8\] bytes"):
        run(CudaMatmulOptions(source=path))


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_that_takes_more_shared_memory_than_there_is_is_refused(mine):
    path = mine("C[row * N + column] = sum;")
    says = 'extern "C" { __constant__ int launch[4] = {16, 16, 256, 1 << 24}; }\n'
    path.write_text(says + path.read_text())
    with pytest.raises(BadArgument, match="16777216 bytes of dynamic shared memory, more than"):
        run(CudaMatmulOptions(source=path))


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_of_the_users_that_faults_ends_with_status_2_and_says_so(mine):
    # By itself: after a fault a process can do nothing more with its GPU.
    path = mine("*(float *)8 = sum;")
    line = [sys.executable, "-m", "gpupack_workloads", "cuda-matmul", f"--source={path}"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "mine.cu: a kernel has failed on the GPU" in ended.stderr


def test_headers_are_found_where_pathfinder_is_new_enough_and_not_missed_where_it_is_not(
    monkeypatch,
):
    assert all(folder.is_dir() for folder in cuda_compiler.headers())
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setenv("PATH", "")
    assert cuda_compiler.headers() == []


def include(root, *, library=False):
    """Make a folder of headers as CUDA 13 has them."""
    folder = root / "include"
    (folder / "cccl" / "cuda" / "std" if library else folder).mkdir(parents=True)
    (folder / "cuda_runtime.h").touch()
    return folder


class Pathfinder:
    """Finds these headers."""

    def __init__(self, found):
        self._found = found

    def find_nvidia_header_directory(self, name):
        assert name == "cudart"
        return self._found and str(self._found)


@pytest.fixture
def toolkit(monkeypatch, tmp_path):
    """A toolkit whose nvcc is on PATH, as a link."""
    folder = include(tmp_path / "cuda-13.0", library=True)
    nvcc = folder.parent / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "nvcc").symlink_to(nvcc)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    return folder


def test_cudas_c_library_is_taken_of_the_toolkit_where_the_python_package_has_none(
    monkeypatch, tmp_path, toolkit
):
    bare = include(tmp_path / "bare")
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", Pathfinder(bare))
    assert cuda_compiler.headers() == [bare, toolkit / "cccl"]
    whole = include(tmp_path / "whole", library=True)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", Pathfinder(whole))
    assert cuda_compiler.headers() == [whole, whole / "cccl"]
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", Pathfinder(None))
    assert cuda_compiler.headers() == [toolkit, toolkit / "cccl"]


def test_without_cudas_c_library_the_message_names_its_package(monkeypatch, tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text("#include <cuda/std/bit>\n")
    found = []
    monkeypatch.setattr(cuda_compiler, "headers", lambda: found)
    with pytest.raises(NoCudaLibrary, match=r"which has <cuda/std/bit>.* nvidia-cuda-cccl, or"):
        Nvrtc().compile(path, "sm_90")
    # Where the library is, another of its headers is not what is missing.
    (tmp_path / "cuda" / "std").mkdir(parents=True)
    found.append(tmp_path)
    with pytest.raises(BadArgument, match="cannot open source file") as refused:
        Nvrtc().compile(path, "sm_90")
    assert not isinstance(refused.value, NoCudaLibrary)
