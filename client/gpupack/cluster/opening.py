# SPDX-License-Identifier: Apache-2.0
"""Opening of the cluster's backend, from the configuration and the environment."""

from collections.abc import Mapping

from gpupack.cluster.backend import ClusterBackend
from gpupack.cluster.calls import Calls
from gpupack.cluster.endpoint import (
    SERVICE_ACCOUNT,
    Endpoint,
    in_pod,
    is_direct,
    own_token,
    pod_namespace,
    require_private,
    trusted_by,
)
from gpupack.cluster.release_in_pod import release_in_pod
from gpupack.cluster.through_kubectl import through_kubectl
from gpupack.config import SYSTEM_NAMESPACE_FIELD, ClusterConfig
from gpupack.errors import ServerNotFound


def open_cluster(config: ClusterConfig, environ: Mapping[str, str]) -> ClusterBackend:
    """Find the server and the caller; send no request yet.

    Raises:
        ServerNotFound: neither the address nor the token of the server is known.
        ConfigInvalid: a setting is not valid.
    """
    endpoint = _endpoint(config, environ)
    namespace = config.namespace or endpoint.namespace
    return ClusterBackend(
        Calls(endpoint), namespace=namespace, own_namespace=pod_namespace(environ)
    )


def _endpoint(config: ClusterConfig, environ: Mapping[str, str]) -> Endpoint:
    if not config.server and not in_pod(environ):
        trusted = trusted_by(config.ca) if config.ca else None
        return through_kubectl(environ, trusted, namespace=config.system_namespace)
    token = own_token(environ)
    if token is None:
        raise ServerNotFound(
            f"there is no token for {config.server}; set GPUPACK_TOKEN to what "
            "`kubectl create token ACCOUNT` prints"
        )
    address = require_private(config.server) if config.server else _in_cluster(config, environ)
    return Endpoint(
        address=lambda: address,
        trusted=trusted_by(config.ca),
        token=token,
        namespace="",
        close=lambda: None,
        direct=is_direct(address),
    )


def _in_cluster(config: ClusterConfig, environ: Mapping[str, str]) -> str:
    """Return the address of the REST API for a pod."""
    named, option = config.system_namespace, SYSTEM_NAMESPACE_FIELD
    return release_in_pod(environ, SERVICE_ACCOUNT, namespace=named, option=option).api_address
