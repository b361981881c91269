# SPDX-License-Identifier: Apache-2.0
"""A plain Triton kernel for any device; also run by the interpreter."""
