# SPDX-License-Identifier: Apache-2.0
"""Who calls, and whether they may: TokenReview and SubjectAccessReview.

Answers are kept for a few seconds, so that an operator that plans sixty jobs costs two reviews;
a revoked token works on for as long. Tokens are kept as digests. Failed reviews are not kept.
"""

import hashlib
import http
from collections.abc import Callable
from typing import Any

import cachetools
import msgspec

from gpupack_crds import names
from gpupack_extender.errors import Denied
from gpupack_kube.client import Api
from gpupack_kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS

KEPT_SECONDS = 10.0
KEPT_ANSWERS = 1024


class User(msgspec.Struct, frozen=True):
    """Who the API server says it is."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


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
    """Judges callers by the API server's word."""

    def __init__(self, api: Api, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._users: cachetools.TTLCache[tuple[bytes, str], User | None] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS, clock
        )
        self._rights: cachetools.TTLCache[tuple[bytes, bytes], bool] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS, clock
        )

    async def may_plan(self, authorization: str, *, namespace: str) -> None:
        """Refuse unless the caller may create gpujobs/plan in the namespace.

        Raises:
            Denied: unknown caller, or no such right.
            KubeError: the API server could not be asked.
        """
        user = await self.known(authorization, audience=names.PLAN_AUDIENCE)
        attributes = {
            "verb": "create",
            "group": names.GROUP,
            "resource": "gpujobs",
            "subresource": "plan",
            "namespace": namespace,
        }
        await self._require(user, {"resourceAttributes": attributes})

    async def may_get(self, authorization: str, *, path: str) -> None:
        """Refuse unless the caller may get this path; any token for the API server will do.

        Raises:
            Denied: unknown caller, or no such right.
            KubeError: the API server could not be asked.
        """
        user = await self.known(authorization, audience="")
        attributes = {"verb": "get", "path": path}
        await self._require(user, {"nonResourceAttributes": attributes})

    async def known(self, authorization: str, *, audience: str) -> User:
        """Say who the caller is.

        Raises:
            Denied: no token, or none that the API server takes for this audience.
            KubeError: the API server could not be asked.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Denied("send a bearer token", status=http.HTTPStatus.UNAUTHORIZED)
        key = (hashlib.sha256(token.encode()).digest(), audience)
        if key not in self._users:
            self._users[key] = await self._review(token, audience)
        user = self._users.get(key)
        if user is None:
            wanted = f" for audience {audience}" if audience else ""
            raise Denied(f"the token is not valid{wanted}", status=http.HTTPStatus.UNAUTHORIZED)
        return user

    async def _review(self, token: str, audience: str) -> User | None:
        spec = {"token": token} | ({"audiences": [audience]} if audience else {})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = (await self._api.post(TOKEN_REVIEWS, body, _TokenReview)).status
        in_audience = not audience or audience in status.audiences
        return status.user if status.authenticated and in_audience else None

    async def _require(self, user: User, attributes: dict[str, Any]) -> None:
        key = (msgspec.json.encode(user), msgspec.json.encode(attributes))
        if key not in self._rights:
            self._rights[key] = await self._is_allowed(user, attributes)
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
