# SPDX-License-Identifier: Apache-2.0
"""A listener that accepts connections within limits, before TLS takes any time.

asyncio's own server counts a connection after its handshake, and waits a minute for that: a silent
client holds a descriptor and buffers for each connection. Here a slot is taken before the
handshake, which waits for its turn and then has HANDSHAKE_SECONDS.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from gpupack_httpserver.connections import Connection
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits, Slot

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.1
"""Pause after a failed accept, for example when descriptors have run out."""

Protocols = Callable[[Slot], Connection]


class Listener:
    """One listening socket; closed like asyncio's own server.

    Args:
        listening: the socket.
        protocols: makes the protocol of a connection that has a slot.
        tls: called for each connection; None: plain HTTP.
        limits: maximum connections, in total and for each address.
        handshakes: order of the TLS handshakes.
        on_failed: called when accepting ended with an error; no connection is accepted after that.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocols: Protocols,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        limits: ConnectionLimits,
        handshakes: Handshakes,
        on_failed: Callable[[], None],
    ) -> None:
        listening.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self.sockets = (listening,)
        self._protocols, self._tls, self._limits = protocols, tls, limits
        self._opening: set[asyncio.Task[None]] = set()
        self._handshakes = handshakes
        self._on_failed = on_failed
        self._accepting = asyncio.create_task(self._accept(listening))
        self._accepting.add_done_callback(self._ended)

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        self._accepting.cancel()
        for task in self._opening:
            task.cancel()
        for each in self.sockets:
            each.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is being accepted."""
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)

    def _ended(self, accepting: asyncio.Task[None]) -> None:
        if not accepting.cancelled():
            log.error("no connection is accepted any more", exc_info=accepting.exception())
            self._on_failed()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connected, address = await asyncio.get_running_loop().sock_accept(listening)
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            task = asyncio.create_task(self._open(connected, str(address[0])))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connected: socket.socket, peer: str) -> None:
        task = asyncio.current_task()
        protocol: Connection | None = None

        def drop() -> None:
            if protocol is not None and protocol.transport is not None:
                protocol.transport.abort()
            elif task is not None:
                task.cancel()

        slot = self._limits.take(peer, drop)
        if slot is None:
            connected.close()
            return
        try:
            if self._tls():
                await self._handshakes.turn(peer)
            protocol = self._protocols(slot)
            await self._establish(protocol, connected, self._tls())
        except Exception as error:
            _give_up(slot, connected)
            if not isinstance(error, OSError):
                log.exception("a connection could not be opened")
        except asyncio.CancelledError:
            _give_up(slot, connected)

    async def _establish(
        self, protocol: Connection, connected: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        """Pass the connection to its protocol, which frees the slot when it is lost.

        Raises:
            OSError: the caller left, sent no TLS, or took too long.
        """
        deadlines = {"ssl_handshake_timeout": HANDSHAKE_SECONDS} if tls else {}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, connected, ssl=tls, **deadlines
        )


def _give_up(slot: Slot, connected: socket.socket) -> None:
    slot.free()
    connected.close()


def listening_socket(host: str, port: int, *, backlog: int) -> socket.socket:
    """Return a TCP socket on this address; `host` empty: on all, with IPv6 where available."""
    if host or not socket.has_dualstack_ipv6():
        return socket.create_server((host, port), backlog=backlog)
    return socket.create_server(
        (host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
    )
