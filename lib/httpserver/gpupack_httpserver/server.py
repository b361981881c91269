# SPDX-License-Identifier: Apache-2.0
"""A uvicorn server that is one of several in a process."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from gpupack_httpserver.connections import Connection
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.listener import Listener, listening_socket
from gpupack_httpserver.peer_limits import ConnectionLimits, Slot


class Server(uvicorn.Server):
    """A server that leaves signals to the process.

    With `limits` it is reachable from pods, and accepts connections within them. `tls` is called
    for each connection, since a certificate may be renewed (certificate.py); None: plain HTTP.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: ConnectionLimits | None = None,
        handshakes: Handshakes | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        super().__init__(config)
        # Set when it listens. Closing a server that cannot listen must report why it cannot.
        self.servers = []
        self._limits = limits
        self._handshakes = handshakes or Handshakes()
        self._tls: Callable[[], ssl.SSLContext | None] = tls or _no_tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        if self._limits is None:
            await super().startup(sockets)
            return
        config = self.config
        listening = listening_socket(config.host, config.port, backlog=config.backlog)
        listener = Listener(
            listening,
            self._protocol,
            tls=self._tls,
            limits=self._limits,
            handshakes=self._handshakes,
            on_failed=self._fail,
        )
        self.servers = [listener]  # type: ignore[list-item]
        self.started = True

    def _fail(self) -> None:
        """End the server: a process without one of its servers must not seem healthy."""
        self.should_exit = True

    def _protocol(self, slot: Slot) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state, slot=slot)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield

    def close(self) -> None:
        """Stop listening at once, for example when the rest of the process has failed."""
        for listener in self.servers:
            listener.close()


def _no_tls() -> None:
    """Return no context: plain HTTP."""


def configured(app: Any, *, host: str, port: int) -> uvicorn.Config:
    """Return the settings of a server for an ASGI application, without TLS."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # By default uvicorn trusts the client address that a caller on loopback sends, for example
        # through a port-forward; limits count by that address.
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )
