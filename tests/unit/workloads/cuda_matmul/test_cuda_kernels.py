# SPDX-License-Identifier: Apache-2.0
"""Compilation and launch of CUDA C++ sources, with replacements of nvcc and the driver."""

import ctypes
import enum
import types
from pathlib import Path

import pytest

from gpupack_workloads import cuda_compiler, cuda_module
from gpupack_workloads.cuda_compiler import Nvcc, choose_compiler
from gpupack_workloads.cuda_matmul.kernels import Kernel, Launch, compile_matmul
from gpupack_workloads.errors import BadArgument

SOURCE = Path("mine.cu")
SIGNATURE = (8, 8, 8, 4, 4, 4)


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701


SUCCESS, INVALID = Status.CUDA_SUCCESS, Status.CUDA_ERROR_INVALID_VALUE


def driver_of(
    *, launch=None, launch_bytes=None, parameters=SIGNATURE, shared_bytes=232448, threads=1024
):
    """Replacement of the driver for one module: its constants, and the GPU's limits."""
    launched = []

    def parameter(function, index):
        known = index < len(parameters)
        return (SUCCESS, 0, parameters[index]) if known else (INVALID, 0, 0)

    def symbol(module, name):
        if launch is None:
            return Status.CUDA_ERROR_NOT_FOUND, 0, 0
        return SUCCESS, 0x1000, launch_bytes or 4 * len(launch)

    def read(to, pointer, size):
        assert size == 4 * len(launch), "what is behind the numbers would be overwritten"
        ctypes.memmove(to, (ctypes.c_int * len(launch))(*launch), size)
        return (SUCCESS,)

    def start(function, *how):
        launched.append(how)
        return (SUCCESS if how[3] <= threads else Status.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,)

    return types.SimpleNamespace(
        launched=launched,
        CUfunction_attribute=types.SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8
        ),
        cuModuleLoadData=lambda cubin: (SUCCESS, "module"),
        cuModuleGetFunction=lambda module, name: (SUCCESS, name),
        cuFuncGetParamInfo=parameter,
        cuModuleGetGlobal=symbol,
        cuMemcpyDtoH=read,
        cuFuncSetAttribute=lambda function, attribute, value: (
            SUCCESS if value <= shared_bytes else INVALID,
        ),
        cuLaunchKernel=start,
    )


@pytest.fixture
def loaded(monkeypatch):
    """Return a function that loads a kernel with such a driver."""

    def loaded(**how):
        driver = driver_of(**how)
        monkeypatch.setattr(cuda_module, "load", lambda name: driver)
        return Kernel(b"", SOURCE), driver

    return loaded


@pytest.fixture
def nvcc(monkeypatch, tmp_path):
    """Put a program on PATH that answers --version, and else runs the given script."""

    def nvcc(does):
        program = tmp_path / "nvcc"
        program.write_text(
            '#!/bin/sh\nif [ "$1" = --version ]; then echo "release 13.0, V13.0.88"; exit; fi\n'
            'for word; do case "$word" in -o=*) out="${word#-o=}";; esac; done\n' + does
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return Nvcc()

    return nvcc


def test_blocks_cover_the_whole_of_c_columns_along_x_and_rows_along_y(loaded):
    kernel, driver = loaded(launch=(128, 256, 64, 98304))
    kernel.launch((1, 2, 3), (257, 512, 40), 7)
    values, _ = driver.launched[0][8]
    assert driver.launched[0][:8] == (2, 3, 1, 64, 1, 1, 98304, 7)
    assert values == (1, 2, 3, 257, 512, 40)


def test_a_source_without_launch_constants_has_16_x_16_elements_per_block(loaded):
    assert loaded()[0].how == Launch(rows=16, columns=16, threads=256, shared_bytes=0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"launch": (16, 16, 256)}, r"mine.cu: launch has 3 numbers; it is int launch\[4\]"),
        ({"launch": (16, 16, 256, 0), "launch_bytes": 17}, r"mine.cu: launch has 17 bytes: it is"),
        ({"launch": (16,), "launch_bytes": 2**32}, r"launch has 4294967296 bytes: .* at most 64"),
        ({"launch": (0, 16, 256, 0)}, "mine.cu: launch says 0 x 16 elements"),
        ({"launch": (16, 16, 1025, 0)}, "1025 threads .* 1 to 1024"),
        ({"launch": (16, 16, 256, -1)}, "-1 bytes"),
        ({"launch": (16, 16, 256, 2**20)}, "1048576 bytes of dynamic shared memory, more than"),
        ({"parameters": SIGNATURE[:5]}, r"parameters of \[8, 8, 8, 4, 4\] bytes, .* void matmul"),
        ({"parameters": (*SIGNATURE, 4)}, r"parameters of \[8, 8, 8, 4, 4, 4, 4\] bytes"),
        ({"parameters": (8, 8, 8, 8, 8, 8)}, "and not those of void matmul"),
    ],
)
def test_a_kernel_that_cannot_be_launched_is_a_bad_argument_that_names_the_source(
    loaded, how, message
):
    with pytest.raises(BadArgument, match=message):
        loaded(**how)


def test_a_launch_that_the_gpu_refuses_is_a_bad_argument(loaded):
    kernel, _ = loaded(launch=(16, 16, 512, 0), threads=256)
    with pytest.raises(BadArgument, match=r"1 x 1 blocks of 512 threads .*OUT_OF_RESOURCES"):
        kernel.launch((1, 2, 3), (4, 4, 4), 0)


def test_an_error_of_nvccs_reaches_the_user_with_file_and_line(nvcc):
    compiler = nvcc("echo \"mine.cu(12): error: identifier 'x' is undefined\" >&2; exit 2\n")
    with pytest.raises(BadArgument, match=r"for sm_90 by nvcc 13.0:\nmine.cu\(12\): error: ident"):
        compiler.compile(SOURCE, "sm_90")


def test_nvccs_output_is_accepted_if_it_has_the_kernel(nvcc):
    made = compile_matmul(nvcc('printf "x.text.matmul\\0" >"$out"\n'), SOURCE, "sm_90")
    assert made[1:6] == b".text"
    with pytest.raises(BadArgument, match=r'mine.cu has no kernel extern "C" __global__ void mat'):
        compile_matmul(nvcc('printf "x.text.matmul2\\0" >"$out"\n'), SOURCE, "sm_90")


def test_without_any_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    missing = ImportError("none")
    monkeypatch.setattr(cuda_compiler, "load", lambda name: (_ for _ in ()).throw(missing))
    with pytest.raises(BadArgument, match="there is no NVRTC: put CUDA's nvcc on PATH, or install"):
        choose_compiler(None)
    with pytest.raises(BadArgument, match="no nvcc: put CUDA's nvcc on PATH, or choose nvrtc"):
        choose_compiler("nvcc")
