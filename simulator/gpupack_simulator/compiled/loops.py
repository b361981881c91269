# SPDX-License-Identifier: Apache-2.0
"""Compilation of loops. Only code that runs with numba imports this: numba takes a second to load.

Machine code is cached between runs, next to the source or in NUMBA_CACHE_DIR. Floating point is the
same as in Python: nothing is contracted or reordered.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


_OPTIONS: Final[dict[str, Any]] = {"cache": True, "_nrt": False}
"""Options of numba. Without `_nrt: False` each call would count references to each array of its
tables, and a run would take ten times as long. With it compiled code must not allocate."""


def compiled(function: F) -> F:
    """Compile a function; its type stays the same for callers."""
    return cast("F", njit(**_OPTIONS)(function))
