# SPDX-License-Identifier: Apache-2.0
"""Authentication and authorization of callers: TokenReview and SubjectAccessReview.

Answers are cached for a few seconds, so that an operator that plans sixty jobs costs two reviews; a
revoked token stays usable for as long. Tokens are cached as digests. Failed reviews are not cached.
A caller without a token may be identified by a client certificate, where a server accepts those.

Refused tokens are cached for longer and separately, so that they displace no valid entry. A peer
whose tokens are refused, or that lacks the permission, causes one question to the API server in ten
seconds. The peer is the service account for which the API server has signed the token, and the
address for everything else. Where addresses are masqueraded, a stranger and the operator have one
address, but a stranger's forged token has no valid signature. Where the API server's keys are not
available, a token that was valid recently is reviewed again, whatever else came from its address.
"""

import functools
import hashlib
import http
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import cachetools
import msgspec

from gpupack_crds import names
from gpupack_httpserver.client_certificates import ClientCertificates, PeerCertificate
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.peer_limits import TokenBuckets
from gpupack_httpserver.permission import missing_permission
from gpupack_httpserver.signing_keys import SigningKeys
from gpupack_httpserver.user import User
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import ACCESS_REVIEWS, TOKEN_REVIEWS

T = TypeVar("T")

KEPT_SECONDS = 10.0
KEPT_ANSWERS = 1024

REFUSED_SECONDS = 60.0
REFUSED_ANSWERS = 4096
REFUSALS_BURST = 5
"""Refusals of one account's or address's tokens, or of one user's permissions, before a wait."""
REFUSALS_SECONDS = 10.0

VALID_SECONDS = 3600.0
"""Lifetime of the operator's projected token (expirationSeconds in the chart)."""
VALID_ANSWERS = 1024


class Caller(NamedTuple):
    """The caller of a request, as far as the request identifies it."""

    authorization: str
    """Value of the Authorization header."""
    address: str
    certificate: PeerCertificate | None = None
    """Certificate that the caller presented to the server that it calls."""


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
    """Authentication and authorization of callers by the API server.

    Args:
        api: the API server.
        clock: returns seconds.
        on_allowed: called with the address of each authorized call.
        certificates: identifies callers by their certificates; None: callers need a token.
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
        """Digests of tokens that were valid recently; such a token is still reviewed."""
        self._rights: cachetools.TTLCache[tuple[bytes, bytes], bool] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS, clock
        )

    async def may_plan(self, caller: Caller, *, namespace: str) -> User:
        """Return the caller's user; refuse unless it may create gpujobs/plan in the namespace.

        Raises:
            Denied: the caller is unknown, or lacks the permission.
            KubeError: the API server could not be asked.
        """
        return await self._may_use_plan(caller, verb="create", where={"namespace": namespace})

    async def may_hear_turns(self, caller: Caller) -> None:
        """Refuse unless the caller may watch gpujobs/plan in all namespaces.

        Raises:
            Denied: the caller is unknown, or lacks the permission.
            KubeError: the API server could not be asked.
        """
        await self._may_use_plan(caller, verb="watch", where={})

    async def may_get(self, caller: Caller, *, path: str) -> None:
        """Refuse unless the caller may get this path; any token for the API server is accepted.

        Raises:
            Denied: the caller is unknown, or lacks the permission.
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
        """Return the caller's user: by its token or, where it sends none, by its certificate.

        A token belongs to this one call, a certificate to its connection. A certificate has no
        audience: where an audience is required, it does not count.

        Raises:
            Denied: no token, or none that the API server accepts for this audience, or too many
                such from its account or this address; or a certificate that is not valid now.
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
        """Return whether a user has a permission, however often it is denied: for bounded callers.

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
            raise missing_permission(user, attributes)

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
    """Ask the API server, unless it refused this peer too often recently.

    Args:
        review: the question; a true answer, or no answer, does not count as a refusal.
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
