# SPDX-License-Identifier: Apache-2.0
"""What kernels refuse."""


class Unsupported(ValueError):
    """Arguments that a kernel cannot compute with, or a GPU that it cannot run on."""
