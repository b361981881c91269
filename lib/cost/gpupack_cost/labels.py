# SPDX-License-Identifier: Apache-2.0
"""Labels of GPU models in sums: the product name, with the memory if the name lacks it.

«NVIDIA A100-SXM4-80GB» stays as it is; «A100» of 40,536 MiB is «A100 (40 GiB)». So models with two
prices are never one line.
"""

import re
from typing import Final

from gpupack_devices.models import names_memory
from gpupack_devices.units import MiB

MIB_PER_GIB: Final = 1024
_LABEL = re.compile(r"(.*) \((\d{1,6}) GiB\)")


def model_label(model: str, memory: MiB) -> str:
    """Return the label of a model; 1 MiB means that the GPU's memory is unknown."""
    if names_memory(model) or memory <= 1:
        return model
    return f"{model} ({round(memory / MIB_PER_GIB)} GiB)"


def parse_label(text: str) -> tuple[str, MiB | None]:
    """Return the product name, and the memory if the label gives it after the name."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return text, None
    return found[1], MiB(int(found[2]) * MIB_PER_GIB)
