# SPDX-License-Identifier: Apache-2.0
"""When a request is retried, and after which delay.

A server that answers «not now, retry in N s» (429, or 503 with Retry-After) has done nothing: any
request is sent again after N s, up to ten tries. A request that was cut off, or ended with a server
error, is sent again only if it reads. Components do not use this module: their own loops retry, and
a Lease cannot wait.
"""

import dataclasses
from collections.abc import Awaitable, Callable
from http.client import SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS
from typing import Final, TypeVar

import aiohttp
import tenacity

from gpupack_kubeclient import errors

T = TypeVar("T")

MAX_WAIT_SECONDS: Final = 60.0
"""Seconds that one request waits in total; it fails at once where a longer wait is requested."""

MAX_TRIES_UNASKED: Final = 4
"""Tries of a reading request where the server does not say when to retry."""

MAX_TRIES_ASKED: Final = 10
"""Tries of a request that the server asks to retry each time; as many as client-go's."""

PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Statuses that do not judge the request: the server, or what is behind it, is busy."""

_TOO_LONG: Final = tenacity.stop_before_delay(MAX_WAIT_SECONDS)
_BACKOFF: Final = tenacity.wait_exponential(multiplier=0.5, max=5.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """A policy that retries requests.

    Attributes:
        notify: gets the seconds of each pause, and the error before it.
    """

    notify: Callable[[float, errors.KubeError], None]

    async def call(self, once: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """Call until it succeeds or a retry is of no use; raise the last error."""
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
            # After any other error of the server a write may have happened.
            asked = error.retry_after_seconds is not None
            return error.status == TOO_MANY_REQUESTS or (
                asked and error.status == SERVICE_UNAVAILABLE
            )
        case errors.Unreachable():
            return reads and _is_cut_off(error.__cause__)
        case _:
            return False


def _is_cut_off(error: BaseException | None) -> bool:
    """Tell whether a connected server closed the connection."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return isinstance(error.os_error, ConnectionResetError)
    hung_up = aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | ConnectionResetError
    return isinstance(error, hung_up) and not isinstance(error, TimeoutError)


def pause(state: tenacity.RetryCallState, *, asked_seconds: float | None) -> float:
    """Return the seconds of a pause: exponential backoff, or what the server requests if longer."""
    return max(asked_seconds or 0.0, _BACKOFF(state))


def is_enough(state: tenacity.RetryCallState, *, is_asked: bool) -> bool:
    """Return whether retrying ends."""
    max_tries = MAX_TRIES_ASKED if is_asked else MAX_TRIES_UNASKED
    return _TOO_LONG(state) or state.attempt_number >= max_tries


def _asked_seconds(state: tenacity.RetryCallState) -> float | None:
    error = _error(state)
    return error.retry_after_seconds if isinstance(error, errors.Refused) else None


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
