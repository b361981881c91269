# SPDX-License-Identifier: Apache-2.0
"""Loop that keeps the Secrets filled.

The loop reads each Secret every few seconds. A watch of four objects would cost the API server as
much. To replace a certificate, `tls.crt` is removed, and the loop fills the Secret within seconds.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Conflict, KubeError
from gpupack_kubeclient.resources import Resource
from gpupack_operator.certificates.certificate_requests import CertificateRequest
from gpupack_operator.certificates.renewal import renew

SECONDS: Final = 10.0
"""Interval between two checks."""

log = logging.getLogger(__name__)


class Secret(objects.Object, frozen=True):
    """A Secret."""

    data: dict[str, str] | None = None


SECRETS: Final = Resource("/api/v1", "secrets", Secret)


async def keep(api: Api, requests: Iterable[CertificateRequest], *, namespace: str) -> None:
    """Check all Secrets, in an endless loop."""
    requests = tuple(requests)
    while True:
        for each in requests:
            try:
                await fill(api, each, namespace=namespace)
            except KubeError as error:
                log.warning("cannot check Secret %s/%s: %s", namespace, each.secret, error)
        await asyncio.sleep(SECONDS)


async def fill(api: Api, request: CertificateRequest, *, namespace: str) -> None:
    """Issue a certificate if the Secret needs one.

    Raises:
        KubeError: the Secret cannot be read or written.
    """
    secret = await api.get(SECRETS, request.secret, namespace=namespace)
    issued = renew(request, secret.data or {}, api.clock.now())
    if issued is None:
        return
    version = {"resourceVersion": secret.metadata.resource_version}
    body = {"metadata": version, "data": issued.data}
    try:
        await api.merge(SECRETS, request.secret, body, namespace=namespace)
    except Conflict:
        # Another client wrote it after the read: the next check judges the new data.
        return
    log.info("issued the certificate in %s/%s: %s", namespace, request.secret, issued.reason)
