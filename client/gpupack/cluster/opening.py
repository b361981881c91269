# SPDX-License-Identifier: Apache-2.0
"""The cluster's backend, from what the configuration and the environment say."""

from collections.abc import Mapping

from gpupack.cluster.backend import ClusterBackend
from gpupack.cluster.calls import Calls
from gpupack.cluster.places import (
    IN_CLUSTER,
    Endpoint,
    in_pod,
    is_direct,
    own_token,
    require_private,
    trusted_by,
)
from gpupack.cluster.port_forward import through_kubectl
from gpupack.config import ClusterConfig
from gpupack.errors import ServerNotFound


def open_cluster(config: ClusterConfig, environ: Mapping[str, str]) -> ClusterBackend:
    """Find the server, and who calls it; nothing is asked of it yet.

    Raises:
        ServerNotFound: nothing says where it is, or with which token it is called.
        ConfigInvalid: what says so cannot be used.
    """
    endpoint = _endpoint(config, environ)
    return ClusterBackend(Calls(endpoint), namespace=config.namespace or endpoint.namespace)


def _endpoint(config: ClusterConfig, environ: Mapping[str, str]) -> Endpoint:
    if not config.server and not in_pod(environ):
        return through_kubectl(environ, trusted_by(config.ca) if config.ca else None)
    token = own_token(environ)
    if token is None:
        raise ServerNotFound(
            f"there is no token for {config.server}; set GPUPACK_TOKEN to what "
            "`kubectl create token ACCOUNT` prints"
        )
    address = require_private(config.server or IN_CLUSTER)
    return Endpoint(
        address=lambda: address,
        trusted=trusted_by(config.ca),
        token=token,
        namespace="",
        close=lambda: None,
        direct=is_direct(address),
    )
