# SPDX-License-Identifier: Apache-2.0
"""Tokens of service accounts as an API server signs them, and forged ones."""

import base64

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(*, kid, alg, sub, **claims):
    head, claims = {"alg": alg, "kid": kid}, {"sub": sub, **claims}
    return f"{encoded(msgspec.json.encode(head))}.{encoded(msgspec.json.encode(claims))}"


def forged(number, *, kid, sub, alg="ES256"):
    """Everything but the signature is as it should be."""
    return f"{unsigned(kid=kid, alg=alg, sub=sub)}.{encoded(number.to_bytes(64))}"


class EcKey:
    """A key on P-256, as an API server may have."""

    alg = "ES256"

    def __init__(self, kid):
        self.kid, self._key = kid, ec.generate_private_key(ec.SECP256R1())

    def jwk(self):
        point = self._key.public_key().public_numbers()
        x, y = encoded(point.x.to_bytes(32)), encoded(point.y.to_bytes(32))
        return {"kty": "EC", "crv": "P-256", "kid": self.kid, "alg": self.alg, "x": x, "y": y}

    def token(self, sub, **claims):
        signed = unsigned(kid=self.kid, alg=self.alg, sub=sub, **claims)
        pair = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{encoded(b''.join(part.to_bytes(32) for part in pair))}"


class RsaKey:
    """A key of 2048 bits, as most API servers have."""

    alg = "RS256"

    def __init__(self, kid):
        self.kid, self._key = kid, rsa.generate_private_key(65537, 2048)

    def jwk(self):
        public = self._key.public_key().public_numbers()
        n, e = encoded(public.n.to_bytes(256)), encoded(public.e.to_bytes(3))
        return {"kty": "RSA", "kid": self.kid, "alg": self.alg, "n": n, "e": e}

    def token(self, sub, **claims):
        signed = unsigned(kid=self.kid, alg=self.alg, sub=sub, **claims)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encoded(signature)}"
