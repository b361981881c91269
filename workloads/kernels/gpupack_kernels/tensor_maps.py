# SPDX-License-Identifier: Apache-2.0
"""Tensor maps for kernels in Gluon, without Triton's checks of what is checked here before.

Triton checks the three descriptors of a product for 6 to 13 us, and a launch should take 40: short
products make the GPU wait for the host. Triton encodes them when it launches, on a thread that must
have a CUDA context by then: `devices.device_of` sees to that.

Not for the interpreter, which cannot import Gluon.
"""

from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


class TensorMap(TensorDescriptor):
    """A tensor descriptor.

    Its start and all steps but the last are multiples of 16 bytes, the last is one element, and no
    dimension is empty.
    """

    def __post_init__(self) -> None:
        """Check nothing."""
