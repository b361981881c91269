# SPDX-License-Identifier: Apache-2.0
"""What a listener may see, for as long as it listens.

at the start     everything that exists
every minute     the token and its permissions are checked again: a loss ends the stream
at any tick      namespaces in which a job changed and that were not checked yet
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from gpupack_apiserver.errors import CallWrong, RightLost
from gpupack_apiserver.events.frames import Scope
from gpupack_apiserver.rights import AT_ONCE, MAX_NAMESPACES, Rights
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
        asked: the namespace of the request; empty: all that the user may see.
    """

    def __init__(self, rights: Rights, caller: Caller, user: User, *, asked: str) -> None:
        self._rights, self._caller, self._user = rights, caller, user
        self._asked = asked
        self._judged: dict[str, bool] = {}
        self.scope = Scope(cluster=False)

    async def begin(self, there: Collection[str]) -> None:
        """Check all permissions.

        Args:
            there: namespaces that have jobs; not a live view, which would change during the check.

        Raises:
            Denied: the user may not see the namespace of the request.
            CallWrong: there are too many namespaces to check each; the request has to name one.
            KubeError: the API server could not be asked.
        """
        cluster = await self._rights.may_see_cluster(self._user)
        everywhere = False
        if self._asked:
            await self._rights.require_namespace(self._user, JOBS, self._asked)
            self._judged[self._asked] = True
        else:
            everywhere = await self._rights.may_list(self._user, JOBS, "")
            candidates = set() if everywhere else set(there)
            if len(candidates) > MAX_NAMESPACES:
                raise CallWrong("namespace", "", f"name one; there are {len(candidates)}")
            self._judged |= await self._judge(candidates)
        self.scope = Scope(cluster, everywhere, self._allowed())

    async def meet(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Check namespaces that are new; return those that may be seen, which are added.

        Raises:
            CallWrong: there are too many namespaces to check each; the request has to name one.
        """
        if self._asked or self.scope.everywhere:
            return frozenset()
        new = set(namespaces) - self._judged.keys()
        if not new:
            return frozenset()
        if (there := len(self._judged) + len(new)) > MAX_NAMESPACES:
            raise CallWrong("namespace", "", f"name one; there are {there}")
        before = self.scope.namespaces
        try:
            self._judged |= await self._judge(new)
        except KubeError:
            return frozenset()
        self.scope = Scope(self.scope.cluster, everywhere=False, namespaces=self._allowed())
        return self.scope.namespaces - before

    async def again(self) -> None:
        """Check the token and all permissions again.

        Raises:
            Denied: the token is no longer valid.
            RightLost: a permission was removed.
            KubeError: the API server could not be asked.
        """
        self._user = await self._rights.still_known(self._caller)
        before = self.scope
        if before.cluster and not await self._rights.may_see_cluster(self._user):
            raise RightLost("the cluster as a whole may not be seen any more")
        if before.everywhere and not await self._rights.may_list(self._user, JOBS, ""):
            raise RightLost("GPUJobs of all namespaces may not be listed any more")
        self._judged = await self._judge(before.namespaces)
        if lost := before.namespaces - self._allowed():
            raise RightLost(f"GPUJobs may not be listed any more in {', '.join(sorted(lost))}")

    def _allowed(self) -> frozenset[str]:
        return frozenset(name for name, allowed in self._judged.items() if allowed)

    async def _judge(self, namespaces: Iterable[str]) -> dict[str, bool]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def judge(namespace: str) -> tuple[str, bool]:
            async with turns:
                return namespace, await self._rights.may_list(self._user, JOBS, namespace)

        return dict(await asyncio.gather(*map(judge, namespaces)))
