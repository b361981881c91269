# SPDX-License-Identifier: Apache-2.0
"""A test call as the caller; the API server's proxy drops the token, so it is not used here."""

import http

from gpupack_cli.doctor.cluster_state import ClusterState, Probe
from gpupack_cli.doctor.parts import API
from gpupack_cli.doctor.reading import MAX_DETAIL_CHARACTERS
from gpupack_cli.errors import CliError, PermissionDenied, Unauthenticated
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError


async def call_rest_api(session: Session, api: Api, seen: ClusterState) -> Probe:
    """Call the REST API like any command, where it is named or found."""
    known = not seen.deployments.refused
    if known and not session.server and seen.deployments.named(API) is None:
        return Probe(detail="the REST API is off")
    try:
        async with session.rest(api) as rest:
            await rest.get_bytes("status")
    except Unauthenticated as error:
        return _probe(http.HTTPStatus.UNAUTHORIZED, error)
    except PermissionDenied as error:
        return _probe(http.HTTPStatus.FORBIDDEN, error)
    except (CliError, KubeError) as error:
        return Probe(detail=str(error)[:MAX_DETAIL_CHARACTERS])
    return Probe(http.HTTPStatus.OK, by_component=True)


def _probe(status: int, error: Exception) -> Probe:
    return Probe(status, str(error)[:MAX_DETAIL_CHARACTERS], by_component=True)
