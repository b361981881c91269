# SPDX-License-Identifier: Apache-2.0
"""What Triton compiles a kernel for, of a number that it is given."""

DIVISOR = 16
BEYOND_32_BITS = 2**31


def kind_of(number: int) -> tuple[bool, bool, bool]:
    """Return what of a number that is not negative tells one compiled kernel from another.

    A one is compiled in; else it counts whether 16 divides the number, and its bits.
    """
    return number == 1, number % DIVISOR == 0, number < BEYOND_32_BITS
