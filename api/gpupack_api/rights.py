# SPDX-License-Identifier: Apache-2.0
"""Who calls, and what the API server lets him see.

Of the cluster as a whole: whoever may get gpunodes/summary, as the chart lets `api.viewers`.
Of a namespace: whoever may list the kind there. Answers are kept for ten seconds; a namespace that
has its first object meanwhile is shown afterwards.
"""

import asyncio
import http
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

import cachetools
import msgspec

from gpupack_api.config import Config
from gpupack_api.errors import CallWrong
from gpupack_crds import names
from gpupack_kube.client import Api
from gpupack_serving.access import Access, Caller
from gpupack_serving.client_certificates import ClientCertificates
from gpupack_serving.errors import Denied
from gpupack_serving.peer_limits import TokenBuckets
from gpupack_serving.user import User

MAX_NAMESPACES: Final = 256
"""For which it is asked whether a user may see them, where he names none."""

AT_ONCE: Final = 8

MAX_AMONG: Final = 16
"""Of the namespaces that one answer is about."""

LOOKS_BURST: Final = 10
LOOKS_SECONDS: Final = 1.0
"""So often it may be asked which namespaces an account may see, at once and from then on: that can
be a question to the API server for each of them."""

KEPT_SECONDS: Final = 10.0
KEPT_ANSWERS: Final = 4096

CLUSTER: Final = {
    "resourceAttributes": {
        "verb": "get",
        "group": names.GROUP,
        "resource": "gpunodes",
        "subresource": "summary",
    }
}
"""Not served by the API server: the right that is asked for. The path of a call would be none:
Kubernetes lets every authenticated user get `/api/*`."""

ADMINISTRATION: Final = {"resourceAttributes": {**CLUSTER["resourceAttributes"], "verb": "update"}}
"""The right to do so; of nobody but the cluster's administrators, until somebody is given it."""

COST_FORWARDING: Final = {
    "resourceAttributes": {
        "verb": "create",
        "group": names.GROUP,
        "resource": "gpujobs",
        "subresource": "costcaller",
    }
}
"""The right to name the user that asks the accountant for costs; gpupack-api alone has it."""

PODS: Final = "pods"
"""The one kind of Kubernetes' own of which callers are told."""

_ACCOUNT: Final = "system:serviceaccount:"


class Rights:
    """Judges callers.

    Args:
        api: the API server.
        certificates: who tells callers by their certificates; None: they need a token.
    """

    def __init__(self, api: Api, certificates: ClientCertificates | None = None) -> None:
        self._access = Access(api, clock=time.monotonic, certificates=certificates)
        self.limit(at_once=Config().calls_at_once, per_second=Config().calls_per_second)
        self._looks = TokenBuckets(burst=LOOKS_BURST, seconds=LOOKS_SECONDS, clock=time.monotonic)
        self._seen: cachetools.TTLCache[tuple[bytes, str], frozenset[str]] = cachetools.TTLCache(
            KEPT_ANSWERS, KEPT_SECONDS
        )

    def limit(self, *, at_once: int, per_second: float) -> None:
        """How often a user may call from now on."""
        seconds = 1 / per_second
        self._calls = TokenBuckets(burst=at_once, seconds=seconds, clock=time.monotonic)

    async def known(self, caller: Caller) -> User:
        """Say who the caller is.

        Raises:
            Denied: no token or certificate that the API server takes, or too many calls.
            KubeError: the API server could not be asked.
        """
        user = await self._access.known(caller, audience="")
        require_left(self._calls, user)
        return user

    async def still_known(self, caller: Caller) -> User:
        """Say it once more of a call that goes on, which counts as no call; raises as `known`."""
        return await self._access.known(caller, audience="")

    async def require_path(self, caller: Caller, path: str) -> None:
        """Refuse unless the caller may get the path; raises Denied, KubeError.

        Only for paths outside /api, which every authenticated user may get.
        """
        await self._access.may_get(caller, path=path)

    async def require_cluster(self, user: User) -> None:
        """Refuse unless the user may see the cluster as a whole; raises Denied, KubeError."""
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
        """Refuse unless the user may change how the API serves; raises Denied, KubeError."""
        await self._require(user, ADMINISTRATION)

    async def may_see_cluster(self, user: User) -> bool:
        """Whether the user may see the cluster as a whole; raises KubeError."""
        return await self._access.allows(user, CLUSTER)

    async def may_list(self, user: User, kind: str, namespace: str) -> bool:
        """Whether the user may list the kind there (empty: everywhere); raises KubeError."""
        return await self._access.allows(user, _listing(kind, namespace))

    async def visible(
        self, user: User, kind: str, *, asked: str, there: Iterable[str]
    ) -> Collection[str]:
        """The namespaces of which the user may see objects of a kind.

        Args:
            user: who calls.
            kind: plural, of our group; or pods.
            asked: the one that he named; empty: all that he may see.
            there: namespaces that have any.

        Raises:
            Denied: he named one that he may not see.
            CallWrong: there are too many to ask about each; he has to name one.
            KubeError: the API server could not be asked.
        """
        if asked:
            await self.require_namespace(user, kind, asked)
            return {asked}
        key = (msgspec.json.encode(user), kind)
        if (seen := self._seen.get(key)) is not None:
            return seen
        require_left(self._looks, user)
        found = self._seen[key] = await self._look(user, kind, sorted(_candidates(user, there)))
        return found

    async def among(self, user: User, kind: str, namespaces: Collection[str]) -> Collection[str]:
        """Those of some namespaces of which the user may see objects of a kind.

        Of many the first are asked about; none is while he has asked so too often.

        Raises:
            KubeError: the API server could not be asked.
        """
        few = sorted(set(namespaces))[:MAX_AMONG]
        key = (msgspec.json.encode(user), f"{kind} {' '.join(few)}")
        if (seen := self._seen.get(key)) is not None or not few:
            return seen or ()
        if not self._looks.take(who_counts(user)):
            return ()
        found = self._seen[key] = await self._look(user, kind, few)
        return found

    async def _look(self, user: User, kind: str, candidates: list[str]) -> frozenset[str]:
        if await self.may_list(user, kind, ""):
            return frozenset(candidates)
        if len(candidates) > MAX_NAMESPACES:
            raise CallWrong("namespace", "", f"name one; there are {len(candidates)}")
        turns = asyncio.Semaphore(AT_ONCE)

        async def may_see(namespace: str) -> bool:
            async with turns:
                return await self.may_list(user, kind, namespace)

        seen = await asyncio.gather(*map(may_see, candidates))
        return frozenset(name for name, may in zip(candidates, seen, strict=True) if may)

    async def _require(self, user: User, attributes: dict[str, Any]) -> None:
        if not await self._access.allows(user, attributes):
            (what,) = attributes.values()
            raise Denied(
                f"{user.username} may not {_said(what)}",
                status=http.HTTPStatus.FORBIDDEN,
            )


def sees_nowhere(user: User, seen: Collection[str], there: Iterable[str]) -> bool:
    """Whether he may see a kind in no namespace that was asked about, which is not: there is none.

    Args:
        user: who calls.
        seen: as `Rights.visible` answered.
        there: namespaces that have any.
    """
    return not seen and bool(_candidates(user, there))


def who_counts(user: User) -> str:
    """As whom: a namespace's service accounts are one caller, since it can make any number."""
    name = user.username
    return name.rpartition(":")[0] if name.startswith(_ACCOUNT) else name


def require_left(buckets: TokenBuckets, user: User) -> None:
    """Count a call.

    Raises:
        Denied: there were too many.
    """
    who = who_counts(user)
    if not buckets.take(who):
        raise Denied(
            f"{who} calls too often; wait a second", status=http.HTTPStatus.TOO_MANY_REQUESTS
        )


def _candidates(user: User, there: Iterable[str]) -> set[str]:
    """With his own namespace, which alone tells whether he may list any where there are none."""
    return {*there, *_own_namespace(user)}


def _own_namespace(user: User) -> list[str]:
    """A service account's."""
    name = user.username
    return [name.removeprefix(_ACCOUNT).partition(":")[0]] if name.startswith(_ACCOUNT) else []


def _said(attributes: dict[str, str]) -> str:
    """As in: list gpupack.dev gpujobs in namespace team."""
    before = {"namespace": "in namespace "}
    return " ".join(before.get(key, "") + each for key, each in attributes.items() if each)


def _listing(kind: str, namespace: str) -> dict[str, Any]:
    return _in_namespace("list", kind, namespace)


def _in_namespace(verb: str, kind: str, namespace: str) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    group = "" if kind == PODS else names.GROUP
    return {"resourceAttributes": {"verb": verb, "group": group, "resource": kind, **where}}
