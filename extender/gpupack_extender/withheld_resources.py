# SPDX-License-Identifier: Apache-2.0
"""Publication in a ConfigMap of the resources that no node offers since gpupack hands out the GPUs.

The chart creates the ConfigMap; it is the parameter of the admission policy `gpupack-withheld`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from gpupack_crds import withheld
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import CONFIG_MAPS
from gpupack_scheduler.ledger.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0

AGAIN_SECONDS: Final = 600.0
"""Interval after which the names are written again: the ConfigMap may have been edited or created
again. The API server does not store a patch that changes nothing.
"""


class WithheldResources:
    """Task that writes the ConfigMap.

    Args:
        api: the API server with the ConfigMap.
        ledger: the known nodes.
        name, namespace: name and namespace of the ConfigMap.
        decides: tells whether this process decides.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        *,
        name: str,
        namespace: str,
        decides: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._ledger, self._decides = api, ledger, decides
        self._name, self._namespace, self._clock = name, namespace, clock
        self._written: tuple[str, ...] | None = None
        self._written_at = 0.0

    async def run(self) -> None:
        """Write in an endless loop.

        Another process may have written while this one did not decide.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._decides():
                await self.look()
            else:
                self._written = None

    async def look(self) -> None:
        """Write the names if they have changed, or were written a while ago."""
        nodes, gpu_nodes = self._ledger.nodes.items, self._ledger.gpus.items
        names = withheld.withheld(nodes.values(), gpu_nodes.values())
        now = self._clock()
        if names == self._written and now - self._written_at < AGAIN_SECONDS:
            return
        body = {"data": {withheld.KEY: " ".join(names)}}
        try:
            await self._api.merge(CONFIG_MAPS, self._name, body, namespace=self._namespace)
        except errors.KubeError as error:
            log.warning("cannot write ConfigMap %s: %s", self._name, error)
        else:
            self._written, self._written_at = names, now
