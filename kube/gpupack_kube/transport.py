# SPDX-License-Identifier: Apache-2.0
"""How requests reach the API server: as the pod's service account, or as a kubeconfig says.

A kubeconfig has many ways to say who one is (certificates, commands, OpenID), and the official
client reads them all. Importing it takes 15 MiB and 0.2 s, as it loads its synchronous half too. In
a cluster there is one way, an address, a certificate and a token in files, and parts that run on
every node need no more: there the client is not imported.
"""

import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec

from gpupack_kube.environment import SettingsInvalid

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token of a pod's service account and the cluster's certificate."""

TOKEN_SECONDS = 60.0
"""After so long the token is read anew: the kubelet replaces it well before it ends."""

CONNECTIONS = 64

LINE_BYTES = 2 << 20
"""What is read ahead of one answer; events of a watch are larger than aiohttp's default."""


class Transport(Protocol):
    """Sends requests; errors are the HTTP library's."""

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


@contextlib.asynccontextmanager
async def connect(
    environ: Mapping[str, str], *, account: Path = ACCOUNT
) -> AsyncGenerator[Transport]:
    """Connect as the pod's service account, or as KUBECONFIG says outside a cluster.

    Raises:
        SettingsInvalid: the service account's files cannot be read.
    """
    if environ.get("KUBERNETES_SERVICE_HOST") and "KUBECONFIG" not in environ:
        async with InCluster.opened(environ, account) as transport:
            yield transport
        return
    from kubernetes.aio import client, config  # noqa: PLC0415 - see above

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    await config.load_kube_config(
        config_file=environ.get("KUBECONFIG"), client_configuration=configuration
    )
    async with client.ApiClient(configuration) as official:
        yield OfKubeconfig(official)


class InCluster:
    """As the pod's service account.

    Args:
        session: with the cluster's certificate.
        address: of the API server.
        token_file: read anew as it changes.
    """

    def __init__(self, session: aiohttp.ClientSession, address: str, token_file: Path) -> None:
        self._session, self._address, self._token_file = session, address, token_file
        self._token, self._read_at = _token(token_file), time.monotonic()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, environ: Mapping[str, str], account: Path) -> AsyncGenerator["InCluster"]:
        """Read the account's files; raises SettingsInvalid."""
        host = environ["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        certificate = account / "ca.crt"
        try:
            context = ssl.create_default_context(cafile=str(certificate))
        except OSError as error:
            raise SettingsInvalid(f"{certificate} is no certificate: {error}") from error
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
        async with aiohttp.ClientSession(
            connector=connector, trust_env=True, read_bufsize=LINE_BYTES
        ) as session:
            port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
            yield cls(session, f"https://{host}:{port}", account / "token")

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
        return await self._session.request(
            method,
            f"{self._address}{path}",
            headers={"User-Agent": "gpupack", **headers, "Authorization": self._bearer()},
            data=None if body is None else msgspec.json.encode(body),
            timeout=timeout,
        )

    def _bearer(self) -> str:
        """A token that cannot be read anew is used on: the API server says when it has ended."""
        if time.monotonic() - self._read_at >= TOKEN_SECONDS:
            with contextlib.suppress(SettingsInvalid):
                self._token = _token(self._token_file)
            self._read_at = time.monotonic()
        return f"Bearer {self._token}"


class OfKubeconfig:
    """As a kubeconfig says.

    Args:
        official: the official client, with its configuration.
    """

    def __init__(self, official: Any) -> None:
        self._official = official

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
        official = self._official
        sent = {**official.default_headers, **headers}
        await official.update_params_for_auth(sent, [], ["BearerToken"], path, method, body)
        answer = await official.rest_client.request(
            method,
            f"{official.configuration.host}{path}",
            headers=sent,
            body=body,
            _request_timeout=timeout,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise SettingsInvalid(f"the service account's token cannot be read: {error}") from error
    if not token:
        raise SettingsInvalid(f"{path} is empty; the kubelet writes the service account's token")
    return token
