# SPDX-License-Identifier: Apache-2.0
"""The kernels as a library."""

import os
import subprocess
import sys

import torch

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
