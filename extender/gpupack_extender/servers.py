# SPDX-License-Identifier: Apache-2.0
"""Servers: the verbs on loopback, health for the kubelet, HTTPS for all other calls."""

from starlette.applications import Starlette

from gpupack_extender.settings import Serving
from gpupack_httpserver.certificate import ServedCertificate
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.server import Server, configured

VERBS_IDLE_SECONDS = 600
"""Longer than Go's client keeps an idle connection (90 s): uvicorn's 5 s would close it during a
call, which kube-scheduler reports as a failed scheduling cycle.
"""

PLAN_IDLE_SECONDS = 30
"""Longer than the operator's client keeps an idle connection (15 s)."""

HEALTH_IDLE_SECONDS = 5
"""The kubelet opens a connection for each probe."""


def verbs_server(app: Starlette, serving: Serving) -> Server:
    """Return the server of the verbs, which only the same pod can reach."""
    config = configured(app, host="127.0.0.1", port=serving.verbs_port)
    config.timeout_keep_alive = VERBS_IDLE_SECONDS
    return Server(config)


def plan_server(
    app: Starlette,
    serving: Serving,
    certificate: ServedCertificate | None = None,
    handshakes: Handshakes | None = None,
) -> Server:
    """Return the plan API's server for the cluster.

    Without a certificate, as in some tests, it serves plain HTTP.
    """
    config = configured(app, host="", port=serving.plan_port)
    config.timeout_keep_alive = PLAN_IDLE_SECONDS
    tls = certificate.context if certificate else None
    return Server(config, ConnectionLimits(), handshakes, tls)


def health_server(app: Starlette, serving: Serving) -> Server:
    """Return the server for the node, and for pods unless a NetworkPolicy forbids it."""
    config = configured(app, host="", port=serving.health_port)
    config.timeout_keep_alive = HEALTH_IDLE_SECONDS
    return Server(config, ConnectionLimits(most=64, per_peer=16))
