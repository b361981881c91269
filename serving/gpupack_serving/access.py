# SPDX-License-Identifier: Apache-2.0
"""Who calls, and whether they may: TokenReview and SubjectAccessReview.

Answers are kept for a few seconds, so that an operator that plans sixty jobs costs two reviews;
a revoked token works on for as long. Tokens are kept as digests. Failed reviews are not kept.
Who sends no token may be known by a client certificate, where a server takes those.

Refused tokens are kept for longer, and apart, so that they crowd out nobody's. Who sends tokens
that are refused, or lacks the right, may have the API server asked once in ten seconds. That is
the service account for which the API server has signed the token, and the address for all else:
where addresses are masqueraded a stranger's is also the operator's, but what he forges he does not
sign. Where the API server's keys cannot be had, a token that was valid of late is reviewed again
whatever else came from its address.
"""

import functools
import hashlib
import http
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import cachetools
import msgspec

from gpupack_crds import names
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS
from gpupack_serving.client_certificates import ClientCertificates, PeerCertificate
from gpupack_serving.errors import Denied
from gpupack_serving.peer_limits import TokenBuckets
from gpupack_serving.signing_keys import SigningKeys
from gpupack_serving.user import User

T = TypeVar("T")

KEPT_SECONDS = 10.0
KEPT_ANSWERS = 1024

REFUSED_SECONDS = 60.0
REFUSED_ANSWERS = 4096
REFUSALS_BURST = 5
"""Tokens of one account or address, or rights of one user, refused before it has to wait."""
REFUSALS_SECONDS = 10.0

VALID_SECONDS = 3600.0
"""As long as the operator's projected token lives (expirationSeconds in the chart)."""
VALID_ANSWERS = 1024


class Caller(NamedTuple):
    """Who calls, as far as the call tells."""

    authorization: str
    """The header."""
    address: str
    certificate: PeerCertificate | None = None
    """That he showed to the server he calls."""


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class Access:
    """Judges callers by the API server's word.

    Args:
        api: the API server.
        clock: seconds.
        on_allowed: called with the address of each call that had the right.
        certificates: who tells callers by their certificates; None: they need a token.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Callable[[], float],
        on_allowed: Callable[[str], None] = lambda _: None,
        certificates: ClientCertificates | None = None,
    ) -> None:
        self._api, self._on_allowed = api, on_allowed
        self._certificates = certificates
        self._signing_keys = SigningKeys(api, clock=clock)
        self._users: cachetools.TTLCache[tuple[bytes, str], User] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS, clock
        )
        self._refused: cachetools.TTLCache[tuple[bytes, str], None] = cachetools.TTLCache(
            REFUSED_ANSWERS, REFUSED_SECONDS, clock
        )
        self._unauthenticated = TokenBuckets(
            burst=REFUSALS_BURST, seconds=REFUSALS_SECONDS, clock=clock
        )
        self._unauthorized = TokenBuckets(
            burst=REFUSALS_BURST, seconds=REFUSALS_SECONDS, clock=clock
        )
        self._valid: cachetools.TTLCache[tuple[bytes, str], None] = cachetools.TTLCache(
            VALID_ANSWERS, VALID_SECONDS, clock
        )
        """Digests of tokens that were valid of late; none is believed for that."""
        self._rights: cachetools.TTLCache[tuple[bytes, bytes], bool] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS, clock
        )

    async def may_plan(self, caller: Caller, *, namespace: str) -> User:
        """Say who the caller is; refuse unless the caller may create gpujobs/plan in the namespace.

        Raises:
            Denied: unknown caller, or no such right.
            KubeError: the API server could not be asked.
        """
        return await self._may_use_plan(caller, verb="create", where={"namespace": namespace})

    async def may_hear_turns(self, caller: Caller) -> None:
        """Refuse unless the caller may watch gpujobs/plan in all namespaces.

        Raises:
            Denied: unknown caller, or no such right.
            KubeError: the API server could not be asked.
        """
        await self._may_use_plan(caller, verb="watch", where={})

    async def may_get(self, caller: Caller, *, path: str) -> None:
        """Refuse unless the caller may get this path; any token for the API server will do.

        Raises:
            Denied: unknown caller, or no such right.
            KubeError: the API server could not be asked.
        """
        user = await self.known(caller, audience="")
        attributes = {"verb": "get", "path": path}
        await self._require(user, {"nonResourceAttributes": attributes})
        self._on_allowed(caller.address)

    async def _may_use_plan(self, caller: Caller, *, verb: str, where: dict[str, str]) -> User:
        user = await self.known(caller, audience=names.PLAN_AUDIENCE)
        plan = {"group": names.GROUP, "resource": "gpujobs", "subresource": "plan"}
        await self._require(user, {"resourceAttributes": {"verb": verb, **plan, **where}})
        self._on_allowed(caller.address)
        return user

    async def known(self, caller: Caller, *, audience: str) -> User:
        """Say who the caller is: by his token or, where he sends none, by his certificate.

        A token is what this one call is made with, a certificate its connection. That has no
        audience: where one is asked for it does not count.

        Raises:
            Denied: no token, or none that the API server takes for this audience, or too many
                such from its account or this address; or a certificate that does not count now.
            KubeError: the API server could not be asked.
        """
        if not caller.authorization and not audience and self._certificates and caller.certificate:
            return self._certificates.user(caller.certificate)
        scheme, _, token = caller.authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Denied("send a bearer token", status=http.HTTPStatus.UNAUTHORIZED)
        key = (hashlib.sha256(token.encode()).digest(), audience)
        user = self._users.get(key)
        if user is None and key not in self._refused:
            review = functools.partial(self._review, token, audience)
            if key in self._valid:
                user = await review()
            else:
                peer = await self._signing_keys.subject(token) or caller.address
                why = f"tokens from {peer} were refused"
                user = await _limited(review, self._unauthenticated, peer, why)
            if user is None:
                self._refused[key] = None
                self._valid.pop(key, None)
            else:
                self._users[key] = user
                self._valid[key] = None
        if user is None:
            wanted = f" for audience {audience}" if audience else ""
            raise Denied(f"the token is not valid{wanted}", status=http.HTTPStatus.UNAUTHORIZED)
        return user

    async def allows(self, user: User, attributes: dict[str, Any]) -> bool:
        """Whether a user has a right, however often it is denied: for callers that are bounded.

        Raises:
            KubeError: the API server could not be asked.
        """
        key = (msgspec.json.encode(user), msgspec.json.encode(attributes))
        found = self._rights.get(key)
        if found is None:
            found = self._rights[key] = await self._is_allowed(user, attributes)
        return found

    async def _review(self, token: str, audience: str) -> User | None:
        spec = {"token": token} | ({"audiences": [audience]} if audience else {})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = (await self._api.post(TOKEN_REVIEWS, body, _TokenReview)).status
        in_audience = not audience or audience in status.audiences
        return status.user if status.authenticated and in_audience else None

    async def _require(self, user: User, attributes: dict[str, Any]) -> None:
        key = (msgspec.json.encode(user), msgspec.json.encode(attributes))
        if key not in self._rights:
            review = functools.partial(self._is_allowed, user, attributes)
            why = f"{user.username} lacked the right"
            self._rights[key] = await _limited(review, self._unauthorized, user.username, why)
        if not self._rights.get(key, False):
            (what,) = attributes.values()
            raise Denied(
                f"{user.username} may not {' '.join(what.values())}",
                status=http.HTTPStatus.FORBIDDEN,
            )

    async def _is_allowed(self, user: User, attributes: dict[str, Any]) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            **attributes,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        return (await self._api.post(ACCESS_REVIEWS, body, _AccessReview)).status.allowed


async def _limited(
    review: Callable[[], Awaitable[T]], refusals: TokenBuckets, peer: str, why: str
) -> T:
    """Ask the API server, unless too much was refused to this peer of late.

    Args:
        review: the question; a true answer, or no answer, counts against nobody.
        refusals: how often each peer may still be refused.
        peer: an address, an account or a user.
        why: what was refused, for the message.

    Raises:
        Denied: too many refusals; the API server was not asked.
        KubeError: the API server could not be asked.
    """
    if not refusals.take(peer):
        raise Denied(
            f"{why} {REFUSALS_BURST} times; wait {REFUSALS_SECONDS:g} s",
            status=http.HTTPStatus.TOO_MANY_REQUESTS,
        )
    try:
        answer = await review()
    except errors.KubeError:
        refusals.put_back(peer)
        raise
    if answer:
        refusals.put_back(peer)
    return answer
