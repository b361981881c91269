# SPDX-License-Identifier: Apache-2.0
"""When a GPU is of the model that was asked for."""

import re
from functools import lru_cache

_SEPARATORS = re.compile(r"[\s\-_/]+")


@lru_cache(maxsize=4096)
def matches_model(asked: str, model: str) -> bool:
    """Whether `asked` is `model` or a run of its whole words, whatever the case.

    >>> matches_model("h100", "NVIDIA H100 80GB HBM3"), matches_model("A10", "NVIDIA-A100-SXM4")
    (True, False)
    """
    wanted, tokens = words(asked), words(model)
    starts = range(len(tokens) - len(wanted) + 1)
    return bool(wanted) and any(tokens[start : start + len(wanted)] == wanted for start in starts)


def words(name: str) -> list[str]:
    """As they are compared: «NVIDIA-A100_80GB» has three."""
    return [token for token in _SEPARATORS.split(name.casefold()) if token]
