# SPDX-License-Identifier: Apache-2.0
"""What a listener may see, for as long as it listens.

at the start     everything that exists
every minute     the token and its permissions are checked again: a loss ends the stream
at any tick      namespaces in which a job changed and that were not checked yet
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from gpupack_apiserver.errors import CallInvalid, PermissionLost
from gpupack_apiserver.events.frames import Scope
from gpupack_apiserver.rights import MAX_CONCURRENT, MAX_NAMESPACES, Rights
from gpupack_httpserver.access import Caller
from gpupack_httpserver.user import User
from gpupack_kubeclient.errors import KubeError

JOBS: Final = "gpujobs"


class Visibility:
    """The permissions of one listener.

    Args:
        rights: authorization of callers.
        caller: the listener.
        user: its user, found at the start.
        namespace: the namespace of the request; empty: all that the user may see.
    """

    def __init__(self, rights: Rights, caller: Caller, user: User, *, namespace: str) -> None:
        self._rights, self._caller, self._user = rights, caller, user
        self._namespace = namespace
        self._checked: dict[str, bool] = {}
        self.scope = Scope(cluster=False)

    async def check_all(self, existing: Collection[str]) -> None:
        """Check all permissions.

        Args:
            existing: namespaces that have jobs; not a live view, which would change meantime.

        Raises:
            Denied: the user may not see the namespace of the request.
            CallInvalid: there are too many namespaces to check each; the request has to name one.
            KubeError: the API server does not answer.
        """
        cluster = await self._rights.may_see_cluster(self._user)
        all_namespaces = False
        if self._namespace:
            await self._rights.require_namespace(self._user, JOBS, self._namespace)
            self._checked[self._namespace] = True
        else:
            all_namespaces = await self._rights.may_list(self._user, JOBS, "")
            candidates = set() if all_namespaces else set(existing)
            if len(candidates) > MAX_NAMESPACES:
                raise CallInvalid("namespace", "", f"name one; there are {len(candidates)}")
            self._checked |= await self._check(candidates)
        self.scope = Scope(cluster, all_namespaces, self._allowed())

    async def check_new(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Check namespaces that are new; return those that may be seen, which are added.

        Raises:
            CallInvalid: there are too many namespaces to check each; the request has to name one.
        """
        if self._namespace or self.scope.all_namespaces:
            return frozenset()
        new = set(namespaces) - self._checked.keys()
        if not new:
            return frozenset()
        if (count := len(self._checked) + len(new)) > MAX_NAMESPACES:
            raise CallInvalid("namespace", "", f"name one; there are {count}")
        before = self.scope.namespaces
        try:
            self._checked |= await self._check(new)
        except KubeError:
            return frozenset()
        self.scope = Scope(self.scope.cluster, all_namespaces=False, namespaces=self._allowed())
        return self.scope.namespaces - before

    async def recheck(self) -> None:
        """Check the token and all permissions again.

        Raises:
            Denied: the token is no longer valid.
            PermissionLost: a permission was removed.
            KubeError: the API server does not answer.
        """
        self._user = await self._rights.reauthenticate(self._caller)
        before = self.scope
        if before.cluster and not await self._rights.may_see_cluster(self._user):
            raise PermissionLost("the permission to see the whole cluster was removed")
        if before.all_namespaces and not await self._rights.may_list(self._user, JOBS, ""):
            raise PermissionLost("the permission to list GPUJobs of all namespaces was removed")
        self._checked = await self._check(before.namespaces)
        if lost := before.namespaces - self._allowed():
            named = ", ".join(sorted(lost))
            raise PermissionLost(f"the permission to list GPUJobs was removed in {named}")

    def _allowed(self) -> frozenset[str]:
        return frozenset(name for name, allowed in self._checked.items() if allowed)

    async def _check(self, namespaces: Iterable[str]) -> dict[str, bool]:
        turns = asyncio.Semaphore(MAX_CONCURRENT)

        async def judge(namespace: str) -> tuple[str, bool]:
            async with turns:
                return namespace, await self._rights.may_list(self._user, JOBS, namespace)

        return dict(await asyncio.gather(*map(judge, namespaces)))
