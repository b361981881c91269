# SPDX-License-Identifier: Apache-2.0
"""Models of GPUs as sums are kept by them: the product name, and the memory where that lacks it.

«NVIDIA A100-SXM4-80GB» stays as it is; «A100» of 40,536 MiB is «A100 (40 GiB)», so that what has
two prices is never one line.
"""

import re
from typing import Final

from gpupack_core.models import tells_memory
from gpupack_core.units import MiB

MIB_PER_GIB: Final = 1024
_LABEL = re.compile(r"(.*) \((\d{1,6}) GiB\)")


def label(model: str, memory: MiB) -> str:
    """As it is shown; of 1 MiB is a GPU of which nobody knows the memory."""
    if tells_memory(model) or memory <= 1:
        return model
    return f"{model} ({round(memory / MIB_PER_GIB)} GiB)"


def read_label(text: str) -> tuple[str, MiB | None]:
    """The product name, and the memory where the label tells it beside the name."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return text, None
    return found[1], MiB(int(found[2]) * MIB_PER_GIB)
