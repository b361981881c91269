# SPDX-License-Identifier: Apache-2.0
"""Plain Triton kernels for any device; also run by the interpreter."""
