# SPDX-License-Identifier: Apache-2.0
"""Arguments of matmul, vector-add, softmax and gemm are judged before torch is imported."""

import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.gemm.options import ragged, sizes, types
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
    ],
)
def test_what_cannot_be_served_ends_with_status_2_and_says_why(arguments, message):
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


def test_softmax_takes_one_length_or_all_that_double():
    assert lengths(77, simulated=False) == [77]
    assert lengths(None, simulated=False) == [1024, 2048, 4096, 8192, 16384, 32768]
    assert lengths(None, simulated=True) == [1024]


def test_gemm_takes_one_size_and_type_or_what_suits_the_device():
    assert (sizes(5, simulated=False), types("float32", simulated=True)) == ((5,), ("float32",))
    assert (sizes(None, simulated=False), sizes(None, simulated=True)) == ((4096, 8192), (96,))
    assert "bfloat16" in types(None, simulated=False)
    assert "bfloat16" not in types(None, simulated=True)


def test_a_ragged_product_has_no_side_that_divides_by_anything_useful():
    assert ragged(4096) == (4095, 4097, 4099)
    assert ragged(1) == (1, 2, 4)
