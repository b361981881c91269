# SPDX-License-Identifier: Apache-2.0
"""Read-modify-write that is retried on conflicts."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import tenacity

from gpupack_kubeclient.errors import Conflict

T = TypeVar("T")

MAX_TRIES: Final = 5
"""More than one try is needed because the operator writes the same objects."""


async def retried(once: Callable[[], Awaitable[T]], *, tries: int = MAX_TRIES) -> T:
    """Call `once`, which reads and writes, until no other write comes in between.

    Raises:
        Conflict: another write came in between each time.
    """
    trying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        stop=tenacity.stop_after_attempt(tries),
        reraise=True,
    )
    return await trying(once)
