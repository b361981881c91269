# SPDX-License-Identifier: Apache-2.0
"""A test call as the caller: the API server's proxy drops the token, and so cannot tell."""

import http

from gpupack_cli.doctor.observed import Observed, Probe
from gpupack_cli.doctor.parts import API
from gpupack_cli.doctor.reading import SAID_CHARACTERS
from gpupack_cli.errors import CliError, NotAllowed, NotKnown
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError


async def called(session: Session, api: Api, seen: Observed) -> Probe:
    """Call the REST API like any command, where it is named or found."""
    if not session.server and seen.deployments.named(API) is None:
        return Probe(said="it is off, or not seen")
    try:
        async with session.rest(api) as rest:
            await rest.get_bytes("status")
    except NotKnown as error:
        return _probe(http.HTTPStatus.UNAUTHORIZED, error)
    except NotAllowed as error:
        return _probe(http.HTTPStatus.FORBIDDEN, error)
    except (CliError, KubeError) as error:
        return Probe(said=str(error)[:SAID_CHARACTERS])
    return Probe(http.HTTPStatus.OK, by_part=True)


def _probe(status: int, error: Exception) -> Probe:
    return Probe(status, str(error)[:SAID_CHARACTERS], by_part=True)
