# SPDX-License-Identifier: Apache-2.0
"""When a request is sent again, and after how long.

A server that says «not now, come again in N s» (429, or 503 with Retry-After) has done nothing: any
request is sent again after N s, up to ten tries. What was cut off, or ended with a server's error,
is sent again if it only reads. Components have none of this: their own loops come again, and a
Lease cannot wait.
"""

import dataclasses
from collections.abc import Awaitable, Callable
from http.client import SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS
from typing import Final, TypeVar

import aiohttp
import tenacity

from gpupack_kube import errors

T = TypeVar("T")

MAX_WAIT_SECONDS: Final = 60.0
"""For which one request waits altogether; it fails at once where it is asked to wait longer."""

MAX_TRIES_UNASKED: Final = 4
"""Of a reading request that failed, where the server does not say when to come again."""

MAX_TRIES_ASKED: Final = 10
"""Of a request that the server asks to send again each time; as many as client-go's."""

PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Refusals that say nothing about what was asked: the server, or what is behind it, is busy."""

_TOO_LONG: Final = tenacity.stop_before_delay(MAX_WAIT_SECONDS)
_BACKOFF: Final = tenacity.wait_exponential(multiplier=0.5, max=5.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """Sends requests again.

    Attributes:
        notify: gets the seconds of each pause, and the error before it.
    """

    notify: Callable[[float, errors.KubeError], None]

    async def call(self, once: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """Call until it succeeds, or waiting is of no use; raises its last error."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda error: _is_passing(error, reads=reads)),
            wait=lambda state: pause(state, asked_seconds=_asked_seconds(state)),
            stop=lambda state: is_enough(state, is_asked=_asked_seconds(state) is not None),
            before_sleep=self._tell,
            reraise=True,
        )
        return await trying(once)

    def _tell(self, state: tenacity.RetryCallState) -> None:
        error = _error(state)
        if isinstance(error, errors.KubeError):
            self.notify(state.upcoming_sleep, error)


def _is_passing(error: BaseException, *, reads: bool) -> bool:
    match error:
        case errors.Refused():
            if reads:
                return error.status in PASSING
            # After any other error of the server a write may have happened all the same.
            asked = error.retry_after_seconds is not None
            return error.status == TOO_MANY_REQUESTS or (
                asked and error.status == SERVICE_UNAVAILABLE
            )
        case errors.Unreachable():
            return reads and _is_cut_off(error.__cause__)
        case _:
            return False


def _is_cut_off(error: BaseException | None) -> bool:
    """Whether a server was there, and hung up."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return isinstance(error.os_error, ConnectionResetError)
    hung_up = aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | ConnectionResetError
    return isinstance(error, hung_up) and not isinstance(error, TimeoutError)


def pause(state: tenacity.RetryCallState, *, asked_seconds: float | None) -> float:
    """Return a little, twice as long each time, or what the server asks for where it is longer."""
    return max(asked_seconds or 0.0, _BACKOFF(state))


def is_enough(state: tenacity.RetryCallState, *, is_asked: bool) -> bool:
    """Return whether a request is not sent again."""
    max_tries = MAX_TRIES_ASKED if is_asked else MAX_TRIES_UNASKED
    return _TOO_LONG(state) or state.attempt_number >= max_tries


def _asked_seconds(state: tenacity.RetryCallState) -> float | None:
    error = _error(state)
    return error.retry_after_seconds if isinstance(error, errors.Refused) else None


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
