# SPDX-License-Identifier: Apache-2.0
"""Compilation and launch of tile C++ sources, with a replacement of the driver; arguments."""

import ctypes
import struct
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpupack_workloads import cuda_module
from gpupack_workloads.cli import main
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.thunderkittens import kernels, programs
from gpupack_workloads.thunderkittens.kernels import (
    GEMM,
    SOURCES,
    Compiled,
    Kernels,
    Operand,
    build_of,
    compiled,
    map_numbers,
    root_of,
)

OK, INVALID, MISSING = 0, 1, 500
BOXES = [64, 64, 64, 256, 64, 64]


class Status(int):
    @property
    def name(self):
        return {OK: "SUCCESS", INVALID: "INVALID", MISSING: "CUDA_ERROR_NOT_FOUND"}[int(self)]


class Map:
    """A tensor map that records its arguments."""

    def __init__(self, address):
        self._bytes = ctypes.create_string_buffer(struct.pack("<Q", address).ljust(128, b"m"), 128)

    def getPtr(self):  # noqa: N802  cuda-bindings' name
        return ctypes.addressof(self._bytes)


def driver_of(*, size, constants):
    """Replacement of the driver for a module whose kernel takes one structure of a given size."""
    launched, maps, places = [], [], {}

    def symbol(module, name):
        if name not in constants:
            return Status(MISSING), 0, 0
        places[len(places) + 1] = constants[name]
        return Status(OK), len(places), 4 * len(constants[name])

    def read(to, pointer, count):
        values = places[pointer]
        ctypes.memmove(to, (ctypes.c_int * len(values))(*values), count)
        return (Status(OK),)

    def encode(*how):
        maps.append(how)
        return Status(OK), Map(how[2])

    def start(function, *how):
        ((structure,), kinds) = how[8]
        launched.append((function, how[:8], bytes(structure), kinds))
        return (Status(OK),)

    number = types.SimpleNamespace
    return number(
        launched=launched,
        maps=maps,
        CUfunction_attribute=number(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8),
        CUtensorMapDataType=number(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16="bf16"),
        CUtensorMapInterleave=number(CU_TENSOR_MAP_INTERLEAVE_NONE="none"),
        CUtensorMapSwizzle=number(CU_TENSOR_MAP_SWIZZLE_128B="128B"),
        CUtensorMapL2promotion=number(CU_TENSOR_MAP_L2_PROMOTION_NONE="none"),
        CUtensorMapFloatOOBfill=number(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE="zero"),
        cuuint64_t=int,
        cuuint32_t=int,
        cuModuleLoadData=lambda cubin: (Status(OK), "module"),
        cuModuleGetFunction=lambda module, name: (Status(OK), name),
        cuFuncGetParamInfo=lambda function, index: (
            (Status(OK), 0, size) if index == 0 else (Status(INVALID), 0, 0)
        ),
        cuModuleGetGlobal=symbol,
        cuMemcpyDtoH=read,
        cuFuncSetAttribute=lambda function, attribute, value: (Status(OK),),
        cuTensorMapEncodeTiled=encode,
        cuLaunchKernel=start,
    )


@pytest.fixture
def loaded(monkeypatch):
    """Return a function that loads the product's source with such a driver."""

    def loaded(*, size, constants, rest=0):
        kernels.tensor_map.cache_clear()
        driver = driver_of(size=size, constants=constants)
        for module in (cuda_module, kernels):
            monkeypatch.setattr(module, "load", lambda name: driver)
        return Kernels(Compiled(GEMM, b"", 0.0), rest=rest), driver

    yield loaded
    kernels.tensor_map.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "0 is not in the range"),
        (["--size", "100"], "--size 100 is no multiple of 64"),
        (["--length", "0"], "0 is not in the range"),
        (["--heads", "129"], "129 is not in the range"),
        (["--compiler", "clang"], "'clang' is not one of 'nvcc', 'nvrtc'"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["thunderkittens", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


def test_the_folder_of_the_headers_is_named_by_the_environment(tmp_path):
    with pytest.raises(BadArgument, match="TK_ROOT is not set: clone https://"):
        root_of({})
    with pytest.raises(BadArgument, match="where there is no include/kittens"):
        root_of({"TK_ROOT": str(tmp_path)})
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "kittens.cuh").touch()
    assert root_of({"TK_ROOT": str(tmp_path)}) == tmp_path


def test_nvrtc_gets_the_missing_headers_of_the_standard_library():
    build = build_of(Path("/tk"))
    assert (build.standard, build.folders) == ("c++20", (Path("/tk/include"),))
    assert "#include <cuda/std/bit>" in build.nvrtc_headers["bit"]
    assert build.nvrtc_options == ("-DKITTENS_NO_HOST",)


def test_a_source_without_one_of_its_kernels_is_refused():
    compiler = types.SimpleNamespace(
        name="nvcc 13.0", compile=lambda path, arch, build: b".text.another\0"
    )
    with pytest.raises(BadArgument, match=r"gemm.cu has no kernel .* void thunderkittens_gemm"):
        compiled(GEMM, compiler, Path("/tk"))


def test_a_map_has_columns_of_64_elements_and_the_box_of_a_tile():
    sizes, steps, box = map_numbers((2, 3, 100, 128), (64, 128))
    assert sizes == (64, 100, 2, 3, 2)
    assert steps == (256, 128, 25600, 76800)
    assert box == (64, 64, 2, 1, 1)


@pytest.mark.parametrize(("alignment", "at", "each"), [(64, 64, 256), (128, 128, 384)])
def test_tensors_are_at_the_compilers_offsets(loaded, alignment, at, each):
    constants = {b"launch": [384, 230400, alignment], b"boxes": BOXES}
    made, driver = loaded(size=3 * each + alignment, constants=constants, rest=4)
    shapes = [(1, 1, 130, 64), (1, 1, 64, 512), (1, 1, 130, 512)]
    operands = [Operand(16 * (number + 1), shape) for number, shape in enumerate(shapes)]
    made.launch("thunderkittens_gemm", operands, blocks=(4, 1), stream=7, rest=b"rest")
    ((function, how, values, kinds),) = driver.launched
    assert (function, how) == (b"thunderkittens_gemm", (4, 1, 1, 384, 1, 1, 230400, 7))
    assert kinds == (None,)
    for number, operand in enumerate(operands):
        start = number * each
        assert struct.unpack_from("<5Q", values, start) == (operand.address, *operand.shape)
        assert values[start + at : start + at + 8] == struct.pack("<Q", operand.address)
    assert values[3 * each : 3 * each + 4] == b"rest"
    assert [how[5] for how in driver.maps] == [
        [64, 64, 1, 1, 1],
        [64, 64, 4, 1, 1],
        [64, 64, 1, 1, 1],
    ]


def test_a_repeated_tensor_is_described_once(loaded):
    made, driver = loaded(size=768, constants={b"launch": [384, 1024, 64], b"boxes": BOXES})
    operands = [Operand(16 * number, (1, 1, 64, 64)) for number in (1, 2, 3)]
    for _ in range(3):
        made.launch("thunderkittens_gemm", operands, blocks=(1, 1), stream=0)
    assert (len(driver.launched), len(driver.maps)) == (3, 3)


def test_a_structure_of_another_size_is_refused(loaded):
    with pytest.raises(
        BadArgument, match=r"gemm.cu: thunderkittens_gemm takes parameters of \[8\]"
    ):
        loaded(size=8, constants={b"launch": [384, 1024, 64], b"boxes": BOXES})


def test_a_source_without_its_constants_is_refused(loaded):
    with pytest.raises(BadArgument, match=r"gemm.cu lacks int launch\[3\] or int boxes"):
        loaded(size=768, constants={b"launch": [384, 1024, 64]})


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_is_ours_and_takes_nothing_but_thunderkittens_master_header(source):
    text = source.path.read_text()
    assert text.startswith("// SPDX-License-Identifier: Apache-2.0\n")
    assert [line for line in text.splitlines() if line.startswith("#include")] == [
        '#include "kittens.cuh"'
    ]
    assert not [word for word in ("multicast", "multimem", "cluster") if word in text]
    assert all(f"void {entry}(const __grid_constant__ Operands" in text for entry in source.entries)


def test_lines_of_code_have_no_comments_docstrings_and_empty_lines():
    assert programs.lines_of_cpp("// one\nint a;  // two\n\n/* three\nfour */\nint b;\n") == 2
    text = (
        '"""Module."""\nimport os\n\n\n@cached\ndef one(\n    a,\n):\n    """Return\n\n    a."""\n'
    )
    text += "    # why\n    return (\n\n        a\n    )\n\n\ndef two():\n    return os\n"
    assert programs.lines_of_python(text, ()) == 9
    assert programs.lines_of_python(text, ("two",)) == 2
    with pytest.raises(ValueError, match="there is no function three"):
        programs.lines_of_python(text, ("one", "three"))


@pytest.mark.parametrize("program", programs.PROGRAMS.values(), ids=map(str, programs.PROGRAMS))
def test_every_program_that_is_counted_is_there(program):
    assert programs.lines_of(program) > 30
