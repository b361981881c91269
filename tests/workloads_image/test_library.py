# SPDX-License-Identifier: Apache-2.0
"""The kernels as a library."""

import os
import subprocess
import sys

import pytest
import torch

from gpupack_workloads.devices import choose_device

IMPORT = "from gpupack_workloads.kernels import gemm, softmax, vector_add"
USE = "gemm(softmax(vector_add(x, x)), x)"


def test_each_kernel_is_a_function_of_the_package_whatever_was_imported_before():
    program = f"""
import torch
x = torch.ones(2, 2, device="cuda" if torch.cuda.is_available() else "cpu")
{IMPORT}
{USE}
import gpupack_workloads.kernels.gemm.launch
{IMPORT}
{USE}
"""
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(
        command, env=os.environ | interpreted, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_triton_hears_that_there_is_no_gpu_before_torch_imports_it(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    choose_device(require_gpu=False)
    assert os.environ["TRITON_INTERPRET"] == "1"
