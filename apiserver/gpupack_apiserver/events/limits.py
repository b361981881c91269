# SPDX-License-Identifier: Apache-2.0
"""Limits on streams: each keeps a connection for as long as it runs."""

import collections
import http
import weakref
from collections.abc import Callable
from typing import Final

from gpupack_httpserver.errors import Denied
from gpupack_httpserver.peer_limits import CONNECTIONS, CONNECTIONS_PER_PEER

MAX_STREAMS: Final = CONNECTIONS // 4
MAX_PER_ADDRESS: Final = CONNECTIONS_PER_PEER // 2
"""Maximum streams of one address; the other half of its connections is for calls."""
MAX_PER_USER: Final = 4


class StreamSlot:
    """One stream in the limits; a garbage-collected one is released as well."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = weakref.finalize(self, release)


class StreamLimits:
    """The number of streams of each user and address."""

    def __init__(self) -> None:
        self.max_per_user = MAX_PER_USER
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()

    def __len__(self) -> int:
        return self._counts["all", ""]

    def take(self, *, user: str, address: str) -> StreamSlot:
        """Add a stream of this user at this address.

        Raises:
            Denied: the maximum is reached.
        """
        counted = ("all", ""), ("address", address), ("user", user)
        for key, limit in zip(
            counted, (MAX_STREAMS, MAX_PER_ADDRESS, self.max_per_user), strict=True
        ):
            if self._counts[key] >= limit:
                owner = "this server" if key[0] == "all" else " ".join(key)
                raise Denied(
                    f"{owner} has {limit} streams of events; end one, or call GET status",
                    status=http.HTTPStatus.TOO_MANY_REQUESTS,
                )
        self._counts.update(counted)
        return StreamSlot(lambda: self._release(counted))

    def _release(self, counted: tuple[tuple[str, str], ...]) -> None:
        for key in counted:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
