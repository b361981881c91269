# SPDX-License-Identifier: Apache-2.0
"""How a loop is compiled. Only what runs with numba imports this: numba takes a second to load.

Machine code is kept from run to run, beside the source or in NUMBA_CACHE_DIR. Floating point is
as Python's: nothing is contracted or reordered.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


_OPTIONS: Final[dict[str, Any]] = {"cache": True, "_nrt": False}
"""Without the second each call would count who refers to each array of the tables that it is given,
and a run would take ten times as long. Nothing may be allocated then."""


def compiled(function: F) -> F:
    """To its callers it is the same function."""
    return cast("F", njit(**_OPTIONS)(function))
