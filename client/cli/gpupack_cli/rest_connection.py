# SPDX-License-Identifier: Apache-2.0
"""Address and certificate of the REST API.

    --server, GPUPACK_SERVER ──► that address; its CA by --ca or GPUPACK_CA, else the system's
    in a pod                 ──► https://gpupack-api.NAMESPACE.svc, as `release` finds it
    else                     ──► kubectl port-forward, for as long as the command runs

The caller is identified as to the API server: by GPUPACK_TOKEN, else by the kubeconfig's token,
else by its client certificate, for which the Service has a separate port and which suffices for
calls that read. Only one is presented. For the last two addresses the CA is in the release's
Secret; a caller that cannot read it names the CA by --ca. Nothing is sent to a server that was not
verified.
"""

import base64
import binascii
import contextlib
import ssl
from collections.abc import AsyncGenerator
from typing import Final

import httpx

from gpupack.cluster.port_forward import CERTIFICATES_PORT, HTTPS_PORT
from gpupack.cluster.release import SERVICE, Release
from gpupack_cli.caller import CallerToken, FixedToken, require_no_impersonation
from gpupack_cli.errors import ConfigurationInvalid, RestUnavailable
from gpupack_cli.port_forward import port_forward
from gpupack_cli.release import find_release
from gpupack_cli.rest import Rest
from gpupack_cli.session import Session
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig import tls
from gpupack_kubeclient.kubeconfig.presented import NoCredentials, Presented
from gpupack_kubeclient.resources import Resource
from gpupack_restapi import PREFIX

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0


class Certificates(objects.Object, frozen=True):
    """A Secret of type kubernetes.io/tls."""

    data: dict[str, str] = {}


SECRETS: Final = Resource("/api/v1", "secrets", Certificates)


@contextlib.asynccontextmanager
async def connect(session: Session, api: Api) -> AsyncGenerator[Rest]:
    """Find the API and connect to it.

    Raises:
        RestUnavailable: it cannot be reached, or its certificate is not known.
        Unauthenticated: the caller has only a client certificate, and none is accepted.
        ConfigurationInvalid: the address or the CA cannot be used.
    """
    identity = await api.identity()
    async with contextlib.AsyncExitStack() as stack:
        own = session.environ.get("GPUPACK_TOKEN", "")
        if not own:
            require_no_impersonation(identity)
        presented = identity.presented
        shows = bool(presented.certificate) and not (own or presented.bearer)
        port = CERTIFICATES_PORT if shows else HTTPS_PORT
        release = None if session.server else await find_release(session, api)
        address = (
            await _address(session, identity, stack, port, release) if release else session.server
        )
        context = await _trusted(session, api, release)
        if shows:
            _load_certificate(context, presented)
        client = _client(session, address, context, FixedToken(own) if own else CallerToken(api))
        yield Rest(
            await stack.enter_async_context(client),
            uses_certificate=shows,
            is_named=bool(session.server),
        )


async def _address(
    session: Session,
    identity: Identity,
    stack: contextlib.AsyncExitStack,
    service_port: int,
    release: Release,
) -> str:
    if identity.in_cluster:
        return release.api_address
    port = await stack.enter_async_context(
        port_forward(session, SERVICE, release.namespace, service_port)
    )
    return f"https://localhost:{port}"


def _client(
    session: Session, address: str, context: ssl.SSLContext, caller: httpx.Auth
) -> httpx.AsyncClient:
    if not address.startswith("https://"):
        raise ConfigurationInvalid(
            f"the server {address!r} is not an https address; write https://HOST:PORT in "
            "--server or GPUPACK_SERVER"
        )
    try:
        return httpx.AsyncClient(
            base_url=f"{address.rstrip('/')}{PREFIX}/",
            verify=context,
            auth=caller,
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            trust_env=bool(session.server),
        )
    except httpx.InvalidURL as error:
        raise ConfigurationInvalid(f"the server {address!r} is not an address: {error}") from error


async def _trusted(session: Session, api: Api, release: Release | None) -> ssl.SSLContext:
    if session.certificate:
        try:
            return ssl.create_default_context(cafile=session.certificate)
        except OSError as error:
            raise ConfigurationInvalid(
                f"{session.certificate} is not a CA certificate: {error}; give a PEM file by --ca"
            ) from error
    if release is None:
        return ssl.create_default_context()
    try:
        secret = await api.get(SECRETS, release.api_secret, namespace=release.namespace)
        text = base64.b64decode(secret.data["ca.crt"], validate=True).decode()
        return ssl.create_default_context(cadata=text)
    except (KubeError, binascii.Error, KeyError, ValueError, ssl.SSLError) as error:
        raise RestUnavailable(
            f"the certificate of the REST API cannot be verified by Secret "
            f"{release.namespace}/{release.api_secret}: {error}; set its CA by --ca or GPUPACK_CA"
        ) from error


def _load_certificate(context: ssl.SSLContext, presented: Presented) -> None:
    try:
        tls.show(context, presented)
    except NoCredentials as error:
        raise ConfigurationInvalid(f"the kubeconfig: {error}") from error
