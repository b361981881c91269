# SPDX-License-Identifier: Apache-2.0
"""The transport of requests to the API server, by kubeconfig or the pod's service account.

    target ─► credentials ─► request ─► 401? renewed once, and sent once more ─► answer

`kubeconfig` defines the meaning of a kubeconfig; this module sends requests.
"""

import asyncio
import contextlib
import http
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec
from multidict import CIMultiDict

from gpupack_kubeclient import errors
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig.credentials import Credentials
from gpupack_kubeclient.kubeconfig.exec_command import Command
from gpupack_kubeclient.kubeconfig.presented import NoCredentials, Presented
from gpupack_kubeclient.kubeconfig.target import ACCOUNT, Target, target_of
from gpupack_kubeclient.sessions import CONNECTIONS, Connector, Contexts, session


class Transport(Protocol):
    """A sender of requests.

    Errors are the HTTP library's, and KubeError for missing credentials.
    """

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, applied by it
    ) -> aiohttp.ClientResponse:
        """Send one request and read the answer's head."""

    def on_behalf(self, authorization: str) -> "Transport":
        """Return the same transport with another user's header instead of its own.

        Raises:
            KubeError: this client has a certificate, which would still identify it.
        """

    async def identity(self) -> Identity:
        """Return this caller's identity, for a server that asks the same API server."""

    async def renew(self, used: Presented) -> bool:
        """Return whether there are other credentials than `used`, which a server rejected."""


@contextlib.asynccontextmanager
async def connect(
    environ: Mapping[str, str], *, account: Path = ACCOUNT, context: str | None = None
) -> AsyncGenerator[Transport]:
    """Connect as kubectl would: by a kubeconfig, in a pod without one by its service account.

    `context` is a context of the kubeconfig; None: the current one.

    Raises:
        SettingsInvalid: no server is named, or a part of the settings cannot be used.
    """
    target = target_of(environ, context=context, account=account)
    credentials, contexts = Credentials(target.sign_in), Contexts(target)
    # A command may prompt the user, so it runs only for the first request.
    if not isinstance(target.sign_in.bearer, Command):
        _try(target, credentials, contexts)
    async with session(target, Connector(limit=CONNECTIONS)) as opened:
        yield HttpTransport(target, credentials, contexts, opened)


def _try(target: Target, credentials: Credentials, contexts: Contexts) -> None:
    """Read every file once, so that errors show at once; raises SettingsInvalid."""
    try:
        contexts.of(credentials.get())
    except (NoCredentials, OSError) as error:
        where = "the service account" if target.in_cluster else "the kubeconfig"
        raise SettingsInvalid(f"{where} cannot be used: {error}") from error


async def signed_in(
    environ: Mapping[str, str], **options: Any
) -> tuple[Target, Presented, aiohttp.ClientSession]:
    """Make a session for a library that sends its requests itself, such as kopf.

    The session presents the current credentials. When they have expired, the caller makes another
    one; the caller also closes the session.

    Raises:
        SettingsInvalid, NoCredentials: as for `connect`.
    """
    target = target_of(environ)
    presented = await asyncio.to_thread(Credentials(target.sign_in).get)
    headers = _headers(target, presented)
    headers.extend(options.pop("headers", {}))
    connector = Connector(limit=0, ssl=Contexts(target).of(presented))
    return target, presented, session(target, connector, headers=headers, **options)


class HttpTransport:
    """A transport to one target.

    Args:
        target: the API server.
        credentials: the credentials of requests.
        contexts: TLS contexts for the credentials.
        opened: the connections.
        authorization: another user's header; empty: the target's own credentials.
    """

    def __init__(
        self,
        target: Target,
        credentials: Credentials,
        contexts: Contexts,
        opened: aiohttp.ClientSession,
        *,
        authorization: str = "",
    ) -> None:
        self._target, self._credentials = target, credentials
        self._contexts, self._opened = contexts, opened
        self._authorization = authorization

    def on_behalf(self, authorization: str) -> "HttpTransport":
        """Send another user's header on the same connections, without impersonation."""
        if self._target.sign_in.certificate is not None:
            raise _speaks_for_us()
        return HttpTransport(
            self._target,
            self._credentials,
            self._contexts,
            self._opened,
            authorization=authorization,
        )

    async def identity(self) -> Identity:
        """Return the identity that the kubeconfig or the service account presents."""
        target = self._target
        own = dict(target.impersonation).get("Impersonate-User", "")
        presented = (
            Presented(authorization=self._authorization)
            if self._authorization
            else await self._presented()
        )
        return Identity(
            presented=presented,
            namespace=target.namespace,
            acts_as="" if self._authorization else own,
            in_cluster=target.in_cluster,
        )

    async def renew(self, used: Presented) -> bool:
        """Issue credentials by a command, or read files again; return whether they changed."""
        if self._authorization:
            return False
        try:
            return await asyncio.to_thread(self._credentials.renew, used)
        except NoCredentials as error:
            raise errors.NotSignedIn(str(error)) from error

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, applied by it
    ) -> aiohttp.ClientResponse:
        """Send one request and read the answer's head."""
        data = None if body is None else msgspec.json.encode(body)
        for last in (False, True):
            presented = await self._presented()
            response = await self._opened.request(
                method,
                f"{self._target.server}{path}",
                headers=self._headers(presented, headers),
                data=data,
                timeout=timeout,
                ssl=self._context(presented),
            )
            unknown = response.status == http.HTTPStatus.UNAUTHORIZED
            try:
                if last or not unknown or not await self.renew(presented):
                    return response
            except BaseException:
                response.release()
                raise
            response.release()
        raise AssertionError("the second answer is returned")

    async def _presented(self) -> Presented:
        """Return the current credentials; a due command or file does not block the event loop."""
        kept = self._credentials.kept()
        if kept is not None:
            return kept
        try:
            return await asyncio.to_thread(self._credentials.get)
        except NoCredentials as error:
            raise errors.NotSignedIn(str(error)) from error

    def _context(self, presented: Presented) -> ssl.SSLContext | bool:
        if self._authorization and presented.certificate:
            raise _speaks_for_us()
        try:
            return self._contexts.of(presented)
        except NoCredentials as error:
            raise errors.NotSignedIn(str(error)) from error

    def _headers(self, presented: Presented, headers: Mapping[str, str]) -> CIMultiDict[str]:
        sent = _headers(self._target, presented)
        if self._authorization:
            sent = CIMultiDict({"Authorization": self._authorization})
        sent.extend({"User-Agent": "gpupack", **headers})
        return sent


def _headers(target: Target, presented: Presented) -> CIMultiDict[str]:
    """Return the headers that identify the caller; each group takes one header."""
    sent = CIMultiDict(target.impersonation)
    if presented.authorization:
        sent["Authorization"] = presented.authorization
    return sent


def _speaks_for_us() -> errors.KubeError:
    return errors.KubeError(
        "the kubeconfig has a client certificate, so that no other user can be spoken for; use one "
        "with a token"
    )
