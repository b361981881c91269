# SPDX-License-Identifier: Apache-2.0
"""The servers: the verbs on the loopback, health for the kubelet, HTTPS for everything else."""

import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from gpupack_extender.connections import Connection
from gpupack_extender.handshakes import Handshakes
from gpupack_extender.listener import Listener, listening_socket
from gpupack_extender.peer_limits import ConnectionLimits, Slot
from gpupack_extender.settings import Serving

VERBS_IDLE_SECONDS = 600
"""Longer than Go's client keeps an idle connection (90 s): uvicorn's 5 s would close it under a
call, which kube-scheduler reports as a failed scheduling cycle."""

PLAN_IDLE_SECONDS = 30
"""Longer than the operator's client keeps one (15 s)."""

HEALTH_IDLE_SECONDS = 5
"""The kubelet opens a connection for each probe."""


class Server(uvicorn.Server):
    """A server that leaves signals to the process, of which it is one of several.

    With `limits` it is reachable from pods, and accepts connections within them.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: ConnectionLimits | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._handshakes = handshakes or Handshakes()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        if self._limits is None:
            await super().startup(sockets)
            return
        config = self.config
        listening = listening_socket(config.host, config.port, backlog=config.backlog)
        listener = Listener(
            listening,
            self._protocol,
            tls=config.ssl,
            limits=self._limits,
            handshakes=self._handshakes,
            on_failed=self._fail,
        )
        self.servers = [listener]  # type: ignore[list-item]
        self.started = True

    def _fail(self) -> None:
        """End by itself: a process without one of its servers must not seem well."""
        self.should_exit = True

    def _protocol(self, slot: Slot) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state, slot=slot)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield

    def close(self) -> None:
        """Stop listening at once, as when the rest of the process has died."""
        for listener in self.servers:
            listener.close()


def verbs_server(app: Starlette, serving: Serving) -> Server:
    """Reachable from the same pod alone."""
    config = _config(app, host="127.0.0.1", port=serving.verbs_port)
    config.timeout_keep_alive = VERBS_IDLE_SECONDS
    return Server(config)


def plan_server(app: Starlette, serving: Serving, handshakes: Handshakes | None = None) -> Server:
    """Reachable from the cluster."""
    config = _config(app, host="", port=serving.plan_port)
    config.ssl_certfile, config.ssl_keyfile = serving.tls_cert, serving.tls_key
    config.timeout_keep_alive = PLAN_IDLE_SECONDS
    return Server(config, ConnectionLimits(), handshakes)


def health_server(app: Starlette, serving: Serving) -> Server:
    """Reachable from the node, and from pods where no NetworkPolicy says otherwise."""
    config = _config(app, host="", port=serving.health_port)
    config.timeout_keep_alive = HEALTH_IDLE_SECONDS
    return Server(config, ConnectionLimits(most=64, per_peer=16))


def _config(app: Starlette, *, host: str, port: int) -> uvicorn.Config:
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
        timeout_graceful_shutdown=10,
    )
