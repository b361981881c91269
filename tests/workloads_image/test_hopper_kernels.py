# SPDX-License-Identifier: Apache-2.0
"""The kernels in Gluon, which no interpreter runs: compiled for a Hopper that need not be here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOPPER_SHARED_KIB = 227


@pytest.fixture(scope="module")
def found():
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-B", "compile_hopper.py"],
        cwd=Path(__file__).parent, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_compile_and_fit_into_shared_memory(found):
    assert len(found) == 6
    assert max(each["shared_kib"] for each in found) <= HOPPER_SHARED_KIB


def test_little_is_spilled(found):
    assert max(each["stack"] for each in found) <= 64


ORIENTATIONS = """
import itertools
import torch
from gpupack_kernels.operators.gemm.hopper.launch import maps_of, turns_of
from gpupack_kernels.operators.gemm.tuning import H200, HOPPER_TILES

def matrix(rows, columns, turned):
    shape = (columns, rows) if turned else (rows, columns)
    found = torch.arange(rows * columns, dtype=torch.float32).reshape(shape).to(torch.bfloat16)
    return found.T if turned else found

sides, turned = (1, 8, 24, 65), (False, True)
for rows, first, second, columns in itertools.product(sides, repeat=4):
    for a_turned, b_turned in itertools.product(turned, repeat=2):
        turns = turns_of(matrix(rows, first, a_turned), matrix(first, columns, b_turned))
        for lying in itertools.product(turned, repeat=2):
            a, b = matrix(rows, second, lying[0]), matrix(second, columns, lying[1])
            a_map, b_map = maps_of(a, b, HOPPER_TILES[H200, 2][0], turns)
            for map_, operand, by_columns in ((a_map, a, turns[0]), (b_map, b, turns[1])):
                expected = operand.T if by_columns else operand
                assert torch.equal(map_.base, expected), (rows, first, second, columns)
                assert list(map_.shape) == list(expected.shape)
print("all alike")
"""


def test_all_products_of_a_sum_are_read_the_same_way_round():
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", ORIENTATIONS],
        cwd=Path(__file__).parent, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "all alike\n", done.stderr
