# SPDX-License-Identifier: Apache-2.0
"""Keeps the Secrets filled.

Each is read every few seconds: a watch of four objects costs the API server no less, and a Secret
that was emptied, which is how a certificate is replaced, is filled again as soon.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from gpupack_kube import objects
from gpupack_kube.client import Api
from gpupack_kube.errors import Conflict, KubeError
from gpupack_kube.resources import Resource
from gpupack_operator.certificates.renewal import renewed
from gpupack_operator.certificates.wanted import Wanted

SECONDS: Final = 10.0
"""Between two looks."""

log = logging.getLogger(__name__)


class Secret(objects.Object, frozen=True):
    """A Secret."""

    data: dict[str, str] | None = None


SECRETS: Final = Resource("/api/v1", "secrets", Secret)


async def keep(api: Api, wanted: Iterable[Wanted], *, namespace: str) -> None:
    """Look at all Secrets, for ever."""
    wanted = tuple(wanted)
    while True:
        for each in wanted:
            try:
                await fill(api, each, namespace=namespace)
            except KubeError as error:
                log.warning("Secret %s/%s is not looked at: %s", namespace, each.secret, error)
        await asyncio.sleep(SECONDS)


async def fill(api: Api, wanted: Wanted, *, namespace: str) -> None:
    """Issue a certificate where a Secret needs one.

    Raises:
        KubeError: the Secret cannot be read or written.
    """
    secret = await api.get(SECRETS, wanted.secret, namespace=namespace)
    issued = renewed(wanted, secret.data or {}, api.clock.now())
    if issued is None:
        return
    version = {"resourceVersion": secret.metadata.resource_version}
    body = {"metadata": version, "data": issued.data}
    try:
        await api.merge(SECRETS, wanted.secret, body, namespace=namespace)
    except Conflict:
        # Another wrote it since: the next look says whether it is right.
        return
    log.info("issued the certificate in %s/%s: %s", namespace, wanted.secret, issued.reason)
