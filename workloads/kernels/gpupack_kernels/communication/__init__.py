# SPDX-License-Identifier: Apache-2.0
"""Kernels that work in another GPU's memory; a folder for each, with `launch` and `kernel`.

They write to given buffers and have no gradients, so they are no torch operators.
"""
