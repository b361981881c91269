# SPDX-License-Identifier: Apache-2.0
"""Credentials of REST API calls: a token, read for each call, since it is renewed.

A kubeconfig that impersonates another user (`as`) is refused: the REST API identifies callers by
their own token, and would answer with the permissions of the user behind it.
"""

from collections.abc import AsyncGenerator
from http import HTTPStatus

import httpx

from gpupack_cli.errors import Unauthenticated
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig.presented import Presented


def require_no_impersonation(identity: Identity) -> None:
    """Check that calls have the caller's own permissions.

    Raises:
        Unauthenticated: the kubeconfig impersonates another user.
    """
    if identity.acts_as:
        raise Unauthenticated(
            f"the kubeconfig impersonates {identity.acts_as!r} (as), which the REST API does not "
            "support; set GPUPACK_TOKEN to a token of that user, or use a context without `as`"
        )


class FixedToken(httpx.Auth):
    """A token from the user.

    Args:
        token: the token.
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
    """The token that identifies the caller to the API server, renewed once where it is rejected.

    Args:
        api: source of the token.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the token; after a rejection send once more with a renewed one."""
        presented = (await self._api.identity()).presented
        response = yield _authorize(request, presented)
        unknown = response.status_code == HTTPStatus.UNAUTHORIZED
        if unknown and await self._api.renew(presented):
            yield _authorize(request, (await self._api.identity()).presented)


def _authorize(request: httpx.Request, presented: Presented) -> httpx.Request:
    if presented.bearer:
        request.headers["Authorization"] = presented.authorization
    return request
