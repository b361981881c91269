# SPDX-License-Identifier: Apache-2.0
"""How requests reach the API server: as the pod's service account, or as a kubeconfig says.

A kubeconfig has many ways to say who one is (certificates, commands, OpenID), and the official
client reads them all. Importing it takes 15 MiB and 0.3 s, as it loads its synchronous half too. In
a cluster there is one way, an address, a certificate and a token in files, and parts that run on
every node need no more: there the client is not imported, nor for a kubeconfig that holds no more
than that (`plain_kubeconfig`).
"""

import contextlib
import os
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec

from gpupack_kube import errors
from gpupack_kube.ca_file import CaFile
from gpupack_kube.environment import SettingsInvalid
from gpupack_kube.identity import Identity
from gpupack_kube.plain_kubeconfig import Credentials, PlainKubeconfig, credentials, plain

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token of a pod's service account and the cluster's certificate."""

DEFAULT = "~/.kube/config"
"""The kubeconfig where KUBECONFIG names none."""

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

    def on_behalf(self, authorization: str) -> "Transport":
        """The same way with another's header instead of our own.

        Raises:
            KubeError: we are known by a certificate, which would speak for us all the same.
        """

    async def identity(self) -> Identity:
        """Who we are, for a server that asks the same API server."""


@contextlib.asynccontextmanager
async def connect(
    environ: Mapping[str, str], *, account: Path = ACCOUNT, context: str | None = None
) -> AsyncGenerator[Transport]:
    """Connect as the pod's service account, or as KUBECONFIG says outside a cluster.

    `context` is one of the kubeconfig; None: its current one.

    Raises:
        SettingsInvalid: the service account's files, or the kubeconfig, cannot be read.
    """
    if environ.get("KUBERNETES_SERVICE_HOST") and "KUBECONFIG" not in environ and not context:
        async with InCluster.opened(environ, account) as transport:
            yield transport
        return
    if (config := plain(environ.get("KUBECONFIG") or DEFAULT, context)) is not None:
        async with OfPlainKubeconfig.opened(config) as transport:
            yield transport
        return
    from kubernetes.aio import client  # noqa: PLC0415 - see above

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    namespace = await _load(configuration, environ.get("KUBECONFIG"), context)
    async with client.ApiClient(configuration) as official:
        yield OfKubeconfig(official, namespace=namespace)


async def _load(configuration: Any, files: str | None, context: str | None) -> str:
    """Read a kubeconfig into the official client's configuration; answers the namespace."""
    import yaml  # noqa: PLC0415 - as the official client, in no cluster
    from kubernetes.aio import config  # noqa: PLC0415 - see above

    try:
        loader = await config.load_kube_config(
            config_file=files, context=context, client_configuration=configuration
        )
        chosen = loader.current_context.get("context") or {}
        return str(chosen.get("namespace") or "default")
    except (
        config.ConfigException,
        yaml.YAMLError,
        OSError,
        AttributeError,
        TypeError,
        ValueError,
        KeyError,
    ) as error:
        raise SettingsInvalid(
            f"no kubeconfig can be read from {files or DEFAULT}: {_why(files or DEFAULT, error)}; "
            "name one in KUBECONFIG"
        ) from error


def _why(files: str, error: Exception) -> str:
    """What is wrong with a file, where the official client tells of its own code instead."""
    paths = [Path(each).expanduser() for each in files.split(os.pathsep) if each]
    there = [path for path in paths if path.exists()]
    if not there:
        return "there is no such file"
    if all(path.is_file() and not path.stat().st_size for path in there):
        return "it is empty"
    if isinstance(error, AttributeError | TypeError):
        return "it holds no fields with values, as a kubeconfig does"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


class InCluster:
    """As the pod's service account.

    Args:
        session: to the API server.
        address: of the API server.
        token_file: read anew as it changes.
        trusted: the cluster's CAs, which may be renewed.
        authorization: another's header; empty: our own.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: str,
        token_file: Path,
        trusted: CaFile,
        *,
        authorization: str = "",
    ) -> None:
        self._session, self._address, self._token_file = session, address, token_file
        self._trusted = trusted
        self._token, self._read_at = _token(token_file), time.monotonic()
        self._authorization = authorization

    def on_behalf(self, authorization: str) -> "InCluster":
        """With another's header, on the same connections."""
        return InCluster(
            self._session,
            self._address,
            self._token_file,
            self._trusted,
            authorization=authorization,
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, environ: Mapping[str, str], account: Path) -> AsyncGenerator["InCluster"]:
        """Read the account's files; raises SettingsInvalid."""
        host = environ["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        certificate = account / "ca.crt"
        try:
            trusted = CaFile(certificate)
        except OSError as error:
            raise SettingsInvalid(f"{certificate} is no certificate: {error}") from error
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(
            connector=connector, trust_env=True, read_bufsize=LINE_BYTES
        ) as session:
            port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
            yield cls(session, f"https://{host}:{port}", account / "token", trusted)

    async def identity(self) -> Identity:
        """By the account's token, in the pod's namespace."""
        try:
            namespace = self._token_file.with_name("namespace").read_text().strip()
        except (OSError, ValueError):
            namespace = ""
        return Identity(authorization=self._bearer(), namespace=namespace or "default")

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
            ssl=self._trusted.context(),
        )

    def _bearer(self) -> str:
        """A token that cannot be read anew is used on: the API server says when it has ended."""
        if self._authorization:
            return self._authorization
        if time.monotonic() - self._read_at >= TOKEN_SECONDS:
            with contextlib.suppress(SettingsInvalid):
                self._token = _token(self._token_file)
            self._read_at = time.monotonic()
        return f"Bearer {self._token}"


class OfPlainKubeconfig:
    """As a kubeconfig says that holds no more than certificates or a token.

    Args:
        session: with the cluster's certificate, and the client's.
        config: what the kubeconfig holds.
        presented: where the client's certificate lies.
        authorization: another's header; empty: our own.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        config: PlainKubeconfig,
        presented: Credentials,
        *,
        authorization: str = "",
    ) -> None:
        self._session, self._config, self._presented = session, config, presented
        own = f"Bearer {config.token}" if config.token else ""
        self._authorization = authorization or own

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, config: PlainKubeconfig) -> AsyncGenerator["OfPlainKubeconfig"]:
        """Connect; raises SettingsInvalid where a certificate is none."""
        with contextlib.ExitStack() as stack:
            try:
                presented = stack.enter_context(credentials(config))
            except (OSError, ValueError) as error:
                raise SettingsInvalid(
                    f"a certificate in the kubeconfig cannot be used: {error}"
                ) from error
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=presented.context)
            async with aiohttp.ClientSession(
                connector=connector, trust_env=True, read_bufsize=LINE_BYTES
            ) as session:
                yield cls(session, config, presented)

    def on_behalf(self, authorization: str) -> "OfPlainKubeconfig":
        """With another's header, unless the kubeconfig has a certificate of ours."""
        _require_no_certificate(self._presented.certificate)
        return OfPlainKubeconfig(
            self._session, self._config, self._presented, authorization=authorization
        )

    async def identity(self) -> Identity:
        """By the kubeconfig's token, certificate or both."""
        return Identity(
            authorization=self._authorization,
            certificate=self._presented.certificate,
            key=self._presented.key,
            namespace=self._config.namespace,
        )

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
        sent = {"User-Agent": "gpupack", **headers}
        if self._authorization:
            sent["Authorization"] = self._authorization
        return await self._session.request(
            method,
            f"{self._config.server}{path}",
            headers=sent,
            data=None if body is None else msgspec.json.encode(body),
            timeout=timeout,
        )


def _require_no_certificate(certificate: str | None) -> None:
    """It would speak for us all the same; raises KubeError."""
    if certificate:
        raise errors.KubeError(
            "the kubeconfig has a client certificate, so that nobody else can be spoken for; "
            "use one with a token"
        )


class OfKubeconfig:
    """As a kubeconfig says.

    Args:
        official: the official client, with its configuration.
        authorization: another's header; empty: as the kubeconfig says.
        namespace: of the context.
    """

    def __init__(
        self, official: Any, *, authorization: str = "", namespace: str = "default"
    ) -> None:
        self._official, self._authorization = official, authorization
        self._namespace = namespace

    def on_behalf(self, authorization: str) -> "OfKubeconfig":
        """With another's header, unless the kubeconfig has a certificate of ours."""
        _require_no_certificate(self._official.configuration.cert_file)
        return OfKubeconfig(self._official, authorization=authorization, namespace=self._namespace)

    async def identity(self) -> Identity:
        """By the kubeconfig's token, certificate or both; a command in it has been run."""
        configuration, sent = self._official.configuration, dict[str, str]()
        await self._official.update_params_for_auth(sent, [], ["BearerToken"], "", "GET", None)
        return Identity(
            authorization=self._authorization or sent.get("authorization", ""),
            certificate=configuration.cert_file or "",
            key=configuration.key_file or "",
            namespace=self._namespace,
        )

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
        if self._authorization:
            sent["Authorization"] = self._authorization
        else:
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
