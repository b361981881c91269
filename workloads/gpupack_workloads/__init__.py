# SPDX-License-Identifier: Apache-2.0
"""gpupack's built-in GPU workloads, which check and measure themselves.

    python -m gpupack_workloads matmul --size 8192 --json
    python -m gpupack_workloads allreduce

Each ends with one result: in the termination message of its container, from where the operator
copies it into the GPUJob's status, and on standard output. Progress goes to standard error.

Only modules below `cli` that compute import torch, so that wrong arguments are refused at once.
"""
