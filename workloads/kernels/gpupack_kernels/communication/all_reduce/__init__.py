# SPDX-License-Identifier: Apache-2.0
"""All-reduce of small buffers over peers' memory: one kernel, no barrier.

Importing `launch` imports Triton, which decides at that moment whether kernels are compiled or
interpreted: set TRITON_INTERPRET before.
"""
