# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels' workloads and of matmul are judged before torch is imported."""

import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.gemm.options import ragged, sizes, types
from gpupack_workloads.llm_kernels import CPU_SIZES, GPU_SIZES, LlmOptions, sizes_for
from gpupack_workloads.softmax.options import lengths


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["matmul", "--size", "65537"], "65537 is not in the range"),
        (["matmul", "--seed", "-1"], "-1 is not in the range"),
        (["matmul", "--columns", "3"], "No such option"),
        (["vector-add", "--size", "0"], "0 is not in the range"),
        (["vector-add", "--size", "1e6"], "is not a valid integer"),
        (["vector-add", "--rows", "3"], "No such option"),
        (["softmax", "--size", "-5"], "-5 is not in the range"),
        (["softmax", "--columns", "0"], "0 is not in the range"),
        (["softmax", "--columns", "2000000"], "2000000 is not in the range"),
        (["gemm", "--size", "0"], "0 is not in the range"),
        (["gemm", "--dtype", "int8"], "'int8' is not one of"),
        (["gemm", "4096"], "unexpected extra argument"),
        (["llm-kernels", "--size", "0"], "0 is not in the range"),
        (["llm-kernels", "--kernel", "gelu"], "'gelu' is not one of"),
        (["llm-kernels", "--dtype", "int8"], "'int8' is not one of"),
        (["llm-kernels", "--hidden", "70000"], "70000 is not in the range"),
        (["llm-kernels", "--head", "1"], "1 is not in the range"),
        (["llm-kernels", "--vocabulary", "1"], "1 is not in the range"),
    ],
)
def test_unsupported_arguments_end_with_status_2_and_a_reason(arguments, message):
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


def test_softmax_takes_one_length_or_all_that_double():
    assert lengths(77, simulated=False) == [77]
    assert lengths(None, simulated=False) == [1024, 2048, 4096, 8192, 16384, 32768]
    assert lengths(None, simulated=True) == [1024]


def test_gemm_takes_one_size_and_type_or_defaults_for_the_device():
    assert (sizes(5, simulated=False), types("float32", simulated=True)) == ((5,), ("float32",))
    assert (sizes(None, simulated=False), sizes(None, simulated=True)) == ((4096, 8192), (96,))
    assert "bfloat16" in types(None, simulated=False)
    assert "bfloat16" not in types(None, simulated=True)


def test_a_ragged_product_has_no_side_that_divides_by_anything_useful():
    assert ragged(4096) == (4095, 4097, 4099)
    assert ragged(1) == (1, 2, 4)


def test_llm_kernels_default_to_the_sizes_of_llama_3_8b_and_to_small_ones_without_a_gpu():
    assert sizes_for(LlmOptions(), simulated=True) == CPU_SIZES
    usual = sizes_for(LlmOptions(), simulated=False)
    assert (usual, usual.tokens, usual.vocabulary) == (GPU_SIZES, 8192, 128256)
    given = sizes_for(LlmOptions(size=9, head=64, dtype="float16"), simulated=False)
    assert (given.tokens, given.head, given.dtype) == (9, 64, "float16")
    assert given.hidden == GPU_SIZES.hidden


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LlmOptions(head=33), "--head 33 is odd"),
        (LlmOptions(dtype="bfloat16"), "--dtype bfloat16 needs a GPU"),
    ],
)
def test_llm_kernels_refuse_what_no_kernel_computes(options, message):
    with pytest.raises(BadArgument, match=message):
        sizes_for(options, simulated=True)
