# SPDX-License-Identifier: Apache-2.0
"""Kernels that work in another GPU's memory: read and modify, copy, ping-pong.

Importing `launch` imports Triton, which decides at that moment whether kernels are compiled or
interpreted: set TRITON_INTERPRET before.
"""
