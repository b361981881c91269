# SPDX-License-Identifier: Apache-2.0
"""How calls of the REST API say who calls: a token, asked for with each call, since it is renewed.

A kubeconfig that acts as another user (`as`) is refused: the REST API knows callers by their own
token, and would answer with the rights of the user behind it.
"""

from collections.abc import AsyncGenerator
from http import HTTPStatus

import httpx

from gpupack_cli.errors import NotKnown
from gpupack_kube.client import Api
from gpupack_kube.identity import Identity
from gpupack_kube.kubeconfig.presented import Presented


def require_itself(identity: Identity) -> None:
    """Check that calls are made with the caller's own rights.

    Raises:
        NotKnown: the kubeconfig acts as another user.
    """
    if identity.acts_as:
        raise NotKnown(
            f"the kubeconfig acts as {identity.acts_as!r} (as), and the REST API knows callers by "
            "their own token alone; set GPUPACK_TOKEN to a token of that user, or use a context "
            "without `as`"
        )


class FixedToken(httpx.Auth):
    """A token that the user gave.

    Args:
        token: as it is.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the token."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class CallerToken(httpx.Auth):
    """The token by which the API server knows the caller, renewed once where it is not known.

    Args:
        api: knows it.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the token; once more with another one."""
        presented = (await self._api.identity()).presented
        response = yield _with(request, presented)
        unknown = response.status_code == HTTPStatus.UNAUTHORIZED
        if unknown and await self._api.renew(presented):
            yield _with(request, (await self._api.identity()).presented)


def _with(request: httpx.Request, presented: Presented) -> httpx.Request:
    if presented.bearer:
        request.headers["Authorization"] = presented.authorization
    return request
