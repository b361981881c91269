# SPDX-License-Identifier: Apache-2.0
"""The keys by which the API server signs tokens of service accounts, as it publishes them.

Whose token a caller sends is known from the token alone where one of these keys has signed it: the
form is RFC 7515's compact one, the keys are RFC 7517's, at /openid/v1/jwks, which every service
account may read. A signature says who is to be charged for a question to the API server, and no
more: whether a token is still good, and for whom, is for TokenReview to say.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from gpupack_kube.client import Api
from gpupack_kube.errors import KubeError
from gpupack_kube.resources import JWKS

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0
"""Between two looks for a key that is not known: so long a key that is new may go unnoticed."""

LONGEST_TOKEN: Final = 16 << 10

_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}
_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class _Key(msgspec.Struct):
    kty: str = ""
    kid: str = ""
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""

    def public_key(self) -> PublicKey:
        """Decode it.

        Raises:
            ValueError: it is of no kind that is used here, or no point of its curve.
        """
        if self.kty == "RSA":
            return rsa.RSAPublicNumbers(_number(self.e), _number(self.n)).public_key()
        if self.kty == "EC" and self.crv in _CURVES:
            curve = _CURVES[self.crv]
            return ec.EllipticCurvePublicNumbers(
                _number(self.x), _number(self.y), curve
            ).public_key()
        raise ValueError(f"key {self.kid}: {self.kty} {self.crv} signs no token")


class _Keys(msgspec.Struct):
    keys: tuple[_Key, ...] = ()


class _Head(msgspec.Struct):
    alg: str
    kid: str


class _Claims(msgspec.Struct):
    sub: str


class SigningKeys:
    """The API server's keys; asked for anew when a token names another one."""

    def __init__(self, api: Api, *, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._keys: dict[str, PublicKey] = {}
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def subject(self, token: str) -> str | None:
        """For whom the API server signed the token; None: it did not, or it shows no keys."""
        parts = token.split(".")
        if len(token) > LONGEST_TOKEN or len(parts) != 3:  # noqa: PLR2004 - RFC 7515, 3.1
            return None
        try:
            head = msgspec.json.decode(_decoded(parts[0]), type=_Head)
            claims = msgspec.json.decode(_decoded(parts[1]), type=_Claims)
            signature = _decoded(parts[2])
            key = await self._key(head.kid)
            if key is not None:
                _verify(key, head.alg, f"{parts[0]}.{parts[1]}".encode(), signature)
                return claims.sub
        except (msgspec.MsgspecError, ValueError, RecursionError, InvalidSignature):
            pass
        return None

    async def _key(self, kid: str) -> PublicKey | None:
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
        known: dict[str, PublicKey] = {}
        for key in published.keys:
            try:
                known[key.kid] = key.public_key()
            except (ValueError, UnsupportedAlgorithm) as error:
                log.warning("a signing key of the API server cannot be read: %s", error)
        self._keys = known


def _verify(key: PublicKey, alg: str, signed: bytes, signature: bytes) -> None:
    """Raises InvalidSignature, or ValueError: the algorithm is not one of this key's."""
    kind, digest = alg[:2], _HASHES.get(alg[2:])
    if digest is None:
        raise ValueError(f"{alg} is not used for tokens of service accounts")
    if isinstance(key, rsa.RSAPublicKey) and kind == "RS":
        key.verify(signature, signed, padding.PKCS1v15(), digest)
        return
    if isinstance(key, ec.EllipticCurvePublicKey) and kind == "ES":
        half = len(signature) // 2
        r, s = (int.from_bytes(part) for part in (signature[:half], signature[half:]))
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        return
    raise ValueError(f"{alg} is not an algorithm of the key that is named")


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("not base64url") from error


def _number(part: str) -> int:
    return int.from_bytes(_decoded(part))
