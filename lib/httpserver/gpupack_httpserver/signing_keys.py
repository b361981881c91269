# SPDX-License-Identifier: Apache-2.0
"""The API server's public keys for service account tokens.

A token that one of these keys has signed identifies its account without a question. The keys are at
/openid/v1/jwks, which every service account may read. A signature only decides which account is
charged for a question to the API server. TokenReview decides whether a token is still valid, and
for which user.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import jwt
import msgspec

from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError
from gpupack_kubeclient.resources import JWKS

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0
"""Seconds between two reads for an unknown key; a new key may go unnoticed for as long."""

LONGEST_TOKEN: Final = 16 << 10
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")


class _Keys(msgspec.Struct):
    keys: tuple[dict[str, Any], ...] = ()


class _Claims(msgspec.Struct):
    sub: str


class SigningKeys:
    """The API server's keys; read again when a token names an unknown one."""

    def __init__(self, api: Api, *, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def subject(self, token: str) -> str | None:
        """Return the account for which the API server signed the token.

        None: it did not sign the token, or publishes no keys.
        """
        if len(token) > LONGEST_TOKEN:
            return None
        try:
            key = await self._key(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                return None
            claims = jwt.PyJWS().decode(token, key, algorithms=[key.algorithm_name])
            return msgspec.json.decode(claims, type=_Claims).sub
        except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, RecursionError):
            return None

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        if kid not in self._keys:
            async with self._asking:
                if self._asked_at is None or self._clock() - self._asked_at >= REFRESH_SECONDS:
                    self._asked_at = self._clock()
                    await self._refresh()
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        try:
            published = await self._api.document(JWKS, _Keys, accept="application/jwk-set+json")
        except KubeError as error:
            log.warning("the API server's signing keys cannot be had: %s", error)
            return
        known: dict[str, jwt.PyJWK] = {}
        for given in published.keys:
            try:
                key = jwt.PyJWK(given)
            except (jwt.PyJWTError, ValueError) as error:
                log.warning("a signing key of the API server cannot be read: %s", error)
                continue
            if key.key_id and key.algorithm_name in ALGORITHMS:
                known[key.key_id] = key
        self._keys = known
