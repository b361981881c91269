# SPDX-License-Identifier: Apache-2.0
"""What a listener may see, for as long as it listens.

at the start     everything that there is
every minute     the token, and what it was allowed: a loss ends the stream
at any tick      namespaces in which a job changed and of which nobody has asked yet
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from gpupack_api.errors import CallWrong, RightLost
from gpupack_api.events.frames import Scope
from gpupack_api.rights import AT_ONCE, MAX_NAMESPACES, Rights
from gpupack_kube.errors import KubeError
from gpupack_serving.access import Caller
from gpupack_serving.user import User

JOBS: Final = "gpujobs"


class Visibility:
    """Of one listener.

    Args:
        rights: who is asked.
        caller: who listens.
        user: who that is, as it was found at the start.
        asked: the namespace that he named; empty: all that he may see.
    """

    def __init__(self, rights: Rights, caller: Caller, user: User, *, asked: str) -> None:
        self._rights, self._caller, self._user = rights, caller, user
        self._asked = asked
        self._judged: dict[str, bool] = {}
        self.scope = Scope(cluster=False)

    async def begin(self, there: Collection[str]) -> None:
        """Ask for everything.

        Args:
            there: namespaces that have jobs; not a view of what changes while the API server is
                asked.

        Raises:
            Denied: he named a namespace that he may not see.
            CallWrong: there are too many to ask about each; he has to name one.
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
        """Ask about namespaces not met before; those of them that may be seen, which now are.

        Raises:
            CallWrong: there are too many to ask about each; the listener has to name one.
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
        """Ask anew for the token, and for all that was allowed.

        Raises:
            Denied: the token is not valid any more.
            RightLost: something is not allowed any more.
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
