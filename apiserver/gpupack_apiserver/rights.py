# SPDX-License-Identifier: Apache-2.0
"""Authentication of callers, and their permissions by the API server.

Seeing the whole cluster requires `get` of gpunodes/summary, which the chart grants to
`api.viewers`. Seeing a namespace requires `list` of the kind there. Answers are cached for ten
seconds; a namespace that gets its first object in that time is shown afterwards.
"""

import asyncio
import http
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

import cachetools
import msgspec

from gpupack_apiserver.config import Config
from gpupack_apiserver.errors import CallInvalid
from gpupack_crds import names
from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.client_certificates import ClientCertificates
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.peer_limits import TokenBuckets
from gpupack_httpserver.permission import missing_permission
from gpupack_httpserver.user import User
from gpupack_kubeclient.client import Api

MAX_NAMESPACES: Final = 256
"""Maximum namespaces that are checked for a user, where the request names none."""

MAX_CONCURRENT: Final = 8

MAX_AMONG: Final = 16
"""Maximum namespaces that are checked for one answer about others."""

LISTINGS_BURST: Final = 10
LISTING_SECONDS: Final = 1.0
"""Limit on checks of which namespaces an account may see.

It allows a burst, then one in this interval: each may cause a request to the API server for every
namespace.
"""

CACHE_SECONDS: Final = 10.0
MAX_CACHED: Final = 4096

CLUSTER: Final = {
    "resourceAttributes": {
        "verb": "get",
        "group": names.GROUP,
        "resource": "gpunodes",
        "subresource": "summary",
    }
}
"""A virtual resource for the permission, which the API server does not serve.

The path of a call would not do: Kubernetes lets every authenticated user get `/api/*`.
"""

ADMINISTRATION: Final = {"resourceAttributes": {**CLUSTER["resourceAttributes"], "verb": "update"}}
"""The permission to change the API's settings; by default only cluster administrators have it."""

COST_FORWARDING: Final = {
    "resourceAttributes": {
        "verb": "create",
        "group": names.GROUP,
        "resource": "gpujobs",
        "subresource": "costcaller",
    }
}
"""The permission to name the user of a cost query; only gpupack-api has it."""

PODS: Final = "pods"
"""The only built-in kind of Kubernetes in answers."""

_ACCOUNT: Final = "system:serviceaccount:"


class Rights:
    """Authentication and authorization of callers.

    Args:
        api: the API server.
        certificates: identifies callers by their certificates; None: callers need a token.
    """

    def __init__(self, api: Api, certificates: ClientCertificates | None = None) -> None:
        self._access = Access(api, clock=time.monotonic, certificates=certificates)
        self.limit(at_once=Config().call_burst, per_second=Config().calls_per_second)
        self._listings = TokenBuckets(
            burst=LISTINGS_BURST, seconds=LISTING_SECONDS, clock=time.monotonic
        )
        self._seen: cachetools.TTLCache[tuple[bytes, str], frozenset[str]] = cachetools.TTLCache(
            MAX_CACHED, CACHE_SECONDS
        )

    def limit(self, *, at_once: int, per_second: float) -> None:
        """Set how often a user may call."""
        seconds = 1 / per_second
        self._calls = TokenBuckets(burst=at_once, seconds=seconds, clock=time.monotonic)

    async def authenticate(self, caller: Caller) -> User:
        """Return the caller's user.

        Raises:
            Denied: no token or certificate that the API server accepts, or too many calls.
            KubeError: the API server does not answer.
        """
        user = await self._access.known(caller, audience="")
        require_within_limit(self._calls, user)
        return user

    async def reauthenticate(self, caller: Caller) -> User:
        """Return the user of a call in progress, without counting a call; raises as `known`."""
        return await self._access.known(caller, audience="")

    async def require_path(self, caller: Caller, path: str) -> None:
        """Refuse unless the caller may get the path; raises Denied, KubeError.

        Use it only for paths outside /api, which every authenticated user may get.
        """
        await self._access.may_get(caller, path=path)

    async def require_cluster(self, user: User) -> None:
        """Refuse unless the user may see the whole cluster; raises Denied, KubeError."""
        await self._require(user, CLUSTER)

    async def require_namespace(self, user: User, kind: str, namespace: str) -> None:
        """Refuse unless the user may list the kind there; raises Denied, KubeError."""
        await self._require(user, _listing(kind, namespace))

    async def require_creation(self, user: User, kind: str, namespace: str) -> None:
        """Refuse unless the user may create objects of a kind there; raises Denied, KubeError."""
        await self._require(user, _in_namespace("create", kind, namespace))

    async def require_cost_forwarder(self, user: User) -> None:
        """Refuse unless the user may name the caller of `cost`; raises Denied, KubeError."""
        await self._require(user, COST_FORWARDING)

    async def require_administrator(self, user: User) -> None:
        """Refuse unless the user may change the API's settings; raises Denied, KubeError."""
        await self._require(user, ADMINISTRATION)

    async def may_see_cluster(self, user: User) -> bool:
        """Return whether the user may see the whole cluster; raises KubeError."""
        return await self._access.allows(user, CLUSTER)

    async def may_list(self, user: User, kind: str, namespace: str) -> bool:
        """Return whether the user may list the kind there (empty: everywhere); raises KubeError."""
        return await self._access.allows(user, _listing(kind, namespace))

    async def visible(
        self, user: User, kind: str, *, namespace: str, existing: Iterable[str]
    ) -> Collection[str]:
        """Return the namespaces in which the user may see objects of a kind.

        Args:
            user: the caller.
            kind: plural, in gpupack's group; or pods.
            namespace: namespace of the request; empty: all that the user may see.
            existing: namespaces that have any.

        Raises:
            Denied: the user may not see the namespace of the request.
            CallInvalid: there are too many to check each; the request has to name one.
            KubeError: the API server does not answer.
        """
        if namespace:
            await self.require_namespace(user, kind, namespace)
            return {namespace}
        key = (msgspec.json.encode(user), kind)
        if (seen := self._seen.get(key)) is not None:
            return seen
        require_within_limit(self._listings, user)
        found = self._seen[key] = await self._check_namespaces(
            user, kind, sorted(_candidates(user, existing))
        )
        return found

    async def visible_among(
        self, user: User, kind: str, namespaces: Collection[str]
    ) -> Collection[str]:
        """Return those of some namespaces in which the user may see objects of a kind.

        Of many, only the first are checked; none is after too many checks.

        Raises:
            KubeError: the API server does not answer.
        """
        few = sorted(set(namespaces))[:MAX_AMONG]
        key = (msgspec.json.encode(user), f"{kind} {' '.join(few)}")
        if (seen := self._seen.get(key)) is not None or not few:
            return seen or ()
        if not self._listings.take(rate_limit_key(user)):
            return ()
        found = self._seen[key] = await self._check_namespaces(user, kind, few)
        return found

    async def _check_namespaces(
        self, user: User, kind: str, candidates: list[str]
    ) -> frozenset[str]:
        if await self.may_list(user, kind, ""):
            return frozenset(candidates)
        if len(candidates) > MAX_NAMESPACES:
            raise CallInvalid("namespace", "", f"name one; there are {len(candidates)}")
        turns = asyncio.Semaphore(MAX_CONCURRENT)

        async def may_see(namespace: str) -> bool:
            async with turns:
                return await self.may_list(user, kind, namespace)

        seen = await asyncio.gather(*map(may_see, candidates))
        return frozenset(name for name, may in zip(candidates, seen, strict=True) if may)

    async def _require(self, user: User, attributes: dict[str, Any]) -> None:
        if not await self._access.allows(user, attributes):
            raise missing_permission(user, attributes)


def sees_nowhere(user: User, seen: Collection[str], existing: Iterable[str]) -> bool:
    """Return whether the user may see a kind in no checked namespace; False where none was checked.

    Args:
        user: the caller.
        seen: the answer of `Rights.visible`.
        existing: namespaces that have any.
    """
    return not seen and bool(_candidates(user, existing))


def rate_limit_key(user: User) -> str:
    """Return the name for limits; a namespace's service accounts count as one caller.

    A namespace can create any number of them.
    """
    name = user.username
    return name.rpartition(":")[0] if name.startswith(_ACCOUNT) else name


def require_within_limit(buckets: TokenBuckets, user: User) -> None:
    """Count a call.

    Raises:
        Denied: there were too many.
    """
    key = rate_limit_key(user)
    if not buckets.take(key):
        raise Denied(
            f"{key} sends too many requests; wait a second",
            status=http.HTTPStatus.TOO_MANY_REQUESTS,
        )


def _candidates(user: User, existing: Iterable[str]) -> set[str]:
    """Return the namespaces with the user's own, which decides where there are no others."""
    return {*existing, *_own_namespace(user)}


def _own_namespace(user: User) -> list[str]:
    """Return a service account's namespace."""
    name = user.username
    return [name.removeprefix(_ACCOUNT).partition(":")[0]] if name.startswith(_ACCOUNT) else []


def _listing(kind: str, namespace: str) -> dict[str, Any]:
    return _in_namespace("list", kind, namespace)


def _in_namespace(verb: str, kind: str, namespace: str) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    group = "" if kind == PODS else names.GROUP
    return {"resourceAttributes": {"verb": verb, "group": group, "resource": kind, **where}}
