# SPDX-License-Identifier: Apache-2.0
"""Limits on streams: each keeps a connection for as long as it runs."""

import collections
import http
import weakref
from collections.abc import Callable
from typing import Final

from gpupack_httpserver.errors import Denied
from gpupack_httpserver.peer_limits import CONNECTIONS, CONNECTIONS_PER_PEER

MOST: Final = CONNECTIONS // 4
MAX_OF_PEER: Final = CONNECTIONS_PER_PEER // 2
"""Maximum streams of one address; the other half of its connections is for calls."""
MAX_OF_USER: Final = 4


class Place:
    """A stream's place among all. One that is garbage-collected is released as well."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        self.free = weakref.finalize(self, let_go)


class StreamLimits:
    """The number of streams of each user and address."""

    def __init__(self) -> None:
        self.of_user = MAX_OF_USER
        self._of: collections.Counter[tuple[str, str]] = collections.Counter()

    def __len__(self) -> int:
        return self._of["all", ""]

    def take(self, *, who: str, peer: str) -> Place:
        """Add a stream of this user at this address.

        Raises:
            Denied: the maximum is reached.
        """
        counted = ("all", ""), ("address", peer), ("user", who)
        for key, most in zip(counted, (MOST, MAX_OF_PEER, self.of_user), strict=True):
            if self._of[key] >= most:
                whose = "this server" if key[0] == "all" else " ".join(key)
                raise Denied(
                    f"{whose} has {most} streams of events; end one, or call GET status",
                    status=http.HTTPStatus.TOO_MANY_REQUESTS,
                )
        self._of.update(counted)
        return Place(lambda: self._let_go(counted))

    def _let_go(self, counted: tuple[tuple[str, str], ...]) -> None:
        for key in counted:
            self._of[key] -= 1
            if not self._of[key]:
                del self._of[key]
