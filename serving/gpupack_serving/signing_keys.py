# SPDX-License-Identifier: Apache-2.0
"""The keys by which the API server signs tokens of service accounts, as it publishes them.

Whose token a caller sends is known from the token alone where one of these keys has signed it; they
stand at /openid/v1/jwks, which every service account may read. A signature says who is to be
charged for a question to the API server, and no more: whether a token is still good, and for whom,
is for TokenReview to say.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import jwt
import msgspec

from gpupack_kube.client import Api
from gpupack_kube.errors import KubeError
from gpupack_kube.resources import JWKS

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0
"""Between two looks for a key that is not known: so long a key that is new may go unnoticed."""

LONGEST_TOKEN: Final = 16 << 10
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")


class _Keys(msgspec.Struct):
    keys: tuple[dict[str, Any], ...] = ()


class _Claims(msgspec.Struct):
    sub: str


class SigningKeys:
    """The API server's keys; asked for anew when a token names another one."""

    def __init__(self, api: Api, *, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def subject(self, token: str) -> str | None:
        """For whom the API server signed the token; None: it did not, or it shows no keys."""
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
