# SPDX-License-Identifier: Apache-2.0
"""The two servers: plain HTTP on the loopback for the verbs, HTTPS for everything else."""

import contextlib
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from gpupack_extender.connections import Connection
from gpupack_extender.settings import Serving

VERBS_IDLE_SECONDS = 600
"""Longer than Go's client keeps an idle connection (90 s): uvicorn's 5 s would close it under a
call, which kube-scheduler reports as a failed scheduling cycle."""

PLAN_IDLE_SECONDS = 30
"""Longer than the operator's client keeps one (15 s). Such connections are counted below."""

PLAN_CONNECTIONS = 256
"""The plan port is reachable from pods: no more connections than this at once."""


class Server(uvicorn.Server):
    """A server that leaves signals to the process it is one of two in."""

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


def plan_server(app: Starlette, serving: Serving) -> Server:
    """Reachable from the cluster."""
    config = _config(app, host="", port=serving.plan_port)
    config.ssl_certfile, config.ssl_keyfile = serving.tls_cert, serving.tls_key
    config.timeout_keep_alive = PLAN_IDLE_SECONDS
    config.limit_concurrency = PLAN_CONNECTIONS
    return Server(config)


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
