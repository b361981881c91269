# SPDX-License-Identifier: Apache-2.0
"""Kernels for Hopper GPUs, written in Gluon."""
