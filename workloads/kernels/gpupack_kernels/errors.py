# SPDX-License-Identifier: Apache-2.0
"""What kernels refuse."""


class Unsupported(ValueError):
    """Error: a kernel does not support the arguments or the GPU."""
