# SPDX-License-Identifier: Apache-2.0
"""Triton kernels: a folder each, with kernel, launcher and reference."""
