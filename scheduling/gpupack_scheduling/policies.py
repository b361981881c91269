# SPDX-License-Identifier: Apache-2.0
"""The placement policies as they are informed now.

With a known mix they are informed once, before the first decision, and decisions repeat exactly.
Otherwise they are informed anew in a thread whenever there is another outlook; until then, and
while that goes on, decisions go on with what was known last. All policies are, those that nobody
has asked for yet, too: two processes that read the same outlook decide the same.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

import gpupack_core as core

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often it is asked whether there is something new to learn."""


class Outlooks(Protocol):
    """Where outlooks come from: a Learner, or what was published."""

    def due(self) -> bool:
        """Whether there is a new one worth having."""

    def outlook(self) -> core.Outlook:
        """What is likely to come, by what came."""


class Policies:
    """Every policy that has been asked for, by name; thread-confined to the event loop."""

    def __init__(
        self,
        default: str,
        learner: Outlooks,
        *,
        known: core.Outlook | None = None,
        look: Callable[[str], core.Policy] = core.policy_named,
    ) -> None:
        self._default, self._learner, self._look = default, learner, look
        self._known, self._outlook = known, known
        self._informed: dict[str, core.Policy] = {}
        self._stale: set[str] = set()
        """Those that do not know the present outlook."""

    def named(self, name: str | None = None) -> core.Policy:
        """The policy of this name (None: the default), with what is known now.

        Raises:
            UnknownPolicy: the message lists those that exist.
        """
        key = name or self._default
        if key not in self._informed:
            self._informed[key] = self._first(self._look(key), key)
            self._stale.add(key)
        return self._informed[key]

    def all(self) -> dict[str | None, core.Policy]:
        """Every policy, as `named`; None: the default."""
        return {None: self.named(), **{name: self.named(name) for name in core.POLICIES}}

    def _first(self, policy: core.Policy, key: str) -> core.Policy:
        try:
            return policy.informed(self._known) if self._known else policy
        except core.CoreError as error:
            log.warning("policy %s decides without what is known: %s", key, error)
            return policy

    async def run(self) -> None:
        """Learn for as long as it runs, unless everything is known."""
        while self._known is None:
            if self._learner.due():
                self._outlook = self._learner.outlook()
                self._stale = {*self._informed, *core.POLICIES}
            await self._catch_up()
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.Event().wait()

    async def _catch_up(self) -> None:
        """Inform those that lag behind; a policy that fails goes on with what it knew."""
        outlook = self._outlook
        while outlook and self._stale:
            key = self._stale.pop()
            try:
                informed = await asyncio.to_thread(self.named(key).informed, outlook)
            except core.CoreError as error:
                log.warning("policy %s goes on with what it knew: %s", key, error)
            else:
                self._informed[key] = informed
