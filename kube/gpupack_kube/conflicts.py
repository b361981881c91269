# SPDX-License-Identifier: Apache-2.0
"""Reads an object and writes it again where another has written it meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import tenacity

from gpupack_kube.errors import Conflict

T = TypeVar("T")

MAX_TRIES: Final = 5
"""The operator writes the same objects."""


async def retried(once: Callable[[], Awaitable[T]], *, tries: int = MAX_TRIES) -> T:
    """Call `once`, which reads and writes, until no other writer is in between.

    Raises:
        Conflict: one was, each time.
    """
    trying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        stop=tenacity.stop_after_attempt(tries),
        reraise=True,
    )
    return await trying(once)
