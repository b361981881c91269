# SPDX-License-Identifier: Apache-2.0
"""Bindings that were sent and that no watch event has shown: ask until it is known.

An unbound pod says nothing at first: the write may still be on its way. The API server ends
every request after a minute (--request-timeout), so after GIVE_UP_SECONDS it never arrives.
"""

import asyncio
import logging

from gpupack_extender.binding import judge, read_pod
from gpupack_extender.ledger.claims import PodClaim, State
from gpupack_extender.ledger.ledger import Ledger
from gpupack_kube import errors
from gpupack_kube.client import Api

log = logging.getLogger(__name__)

ASK_AFTER_SECONDS = 5.0
GIVE_UP_SECONDS = 180.0


class Doubts:
    """Settles claims that neither an answer nor the watch has settled."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        self._api = api
        self._ledger = ledger

    async def run(self) -> None:
        """Ask every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(ASK_AFTER_SECONDS)
            for claim in self._ledger.unconfirmed(older_than_seconds=ASK_AFTER_SECONDS):
                await self.ask(claim)

    async def ask(self, claim: PodClaim) -> None:
        """Read the pod; if it tells what became of the Binding, so does the ledger."""
        late = self._ledger.age_seconds(claim) > GIVE_UP_SECONDS
        may_land = claim.state is State.LANDED or not late
        try:
            pod = await read_pod(
                self._api, namespace=claim.namespace, name=claim.name, uid=claim.uid
            )
        except errors.KubeError as error:
            log.warning("pod %s/%s, bound or not: %s", claim.namespace, claim.name, error)
            return
        self._ledger.settle(claim, judge(pod, claim, may_have_landed=may_land))
