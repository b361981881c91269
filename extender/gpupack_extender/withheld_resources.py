# SPDX-License-Identifier: Apache-2.0
"""Publishes which resources no node offers since gpupack hands out the GPUs, in a ConfigMap.

The chart makes the ConfigMap; the admission policy `gpupack-withheld` takes it as its parameter.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gpupack_crds import withheld
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.resources import CONFIG_MAPS
from gpupack_scheduling.ledger.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0


class WithheldResources:
    """A task of the extender.

    Args:
        api: where the ConfigMap is.
        ledger: which nodes there are.
        name, namespace: of the ConfigMap.
        decides: whether this process does.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        *,
        name: str,
        namespace: str,
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._ledger, self._decides = api, ledger, decides
        self._name, self._namespace = name, namespace
        self._written: tuple[str, ...] | None = None

    async def run(self) -> None:
        """Write for ever; another process may have written while this one did not decide."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._decides():
                await self.look()
            else:
                self._written = None

    async def look(self) -> None:
        """Write the names if they have changed."""
        nodes, gpu_nodes = self._ledger.nodes.items, self._ledger.gpus.items
        names = withheld.withheld(nodes.values(), gpu_nodes.values())
        if names == self._written:
            return
        body = {"data": {withheld.KEY: " ".join(names)}}
        try:
            await self._api.merge(CONFIG_MAPS, self._name, body, namespace=self._namespace)
        except errors.KubeError as error:
            log.warning("cannot write ConfigMap %s: %s", self._name, error)
        else:
            self._written = names
