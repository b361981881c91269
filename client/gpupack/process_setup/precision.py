# SPDX-License-Identifier: Apache-2.0
"""The 16-bit type that a GPU computes fast with."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

_FLOAT16_ALONE: Final = re.compile(
    r"\b(V100S?|P100|P40|P4|T4|T4G|K80|M40|M60|TITAN (V|X|RTX)|GTX|RTX 20\d\d|Quadro RTX"
    r"|GV100|GP100)\b",
    re.IGNORECASE,
)
"""Models before Ampere (compute capability 8.0), without bfloat16 in hardware."""


class Precision(msgspec.Struct, frozen=True):
    """The settings of computation in mixed precision.

    Attributes:
        enabled: False: everything in float32.
        dtype: bfloat16 or float16; float32 where it is not enabled.
        grad_scaler: gradients have to be scaled, as float16 has few small numbers.
    """

    enabled: bool
    dtype: str
    grad_scaler: bool


FULL_PRECISION: Final = Precision(enabled=False, dtype="float32", grad_scaler=False)


def precision_of(models: Iterable[str], *, mixed: bool) -> Precision:
    """Return the precision for GPUs of these models; an unknown model counts as without bfloat16.

    On a CPU (no models) it is bfloat16, the only type for which frameworks have kernels there.
    """
    if not mixed:
        return FULL_PRECISION
    if any(not model or _FLOAT16_ALONE.search(model) for model in models):
        return Precision(enabled=True, dtype="float16", grad_scaler=True)
    return Precision(enabled=True, dtype="bfloat16", grad_scaler=False)
