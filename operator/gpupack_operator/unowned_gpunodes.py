# SPDX-License-Identifier: Apache-2.0
"""GPUNodes without an owner: each is given to its Node, or deleted where there is no such Node.

Agents create theirs with the Node as owner, and the garbage collector deletes it with the Node. One
that a person wrote has no owner, and would outlive its Node.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from typing import Final

from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.node_owner import node_reference

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
MAX_LOOKS: Final = 20
"""GPUNodes at one look."""
GRACE_SECONDS: Final = 60.0
"""How old a GPUNode is that is deleted: its Node may be on the way."""


class UnownedGpuNodes:
    """A reflector's store, and the task that acts.

    Args:
        api: where GPUNodes and Nodes are.
        now: by the API server's clock.
    """

    def __init__(self, api: Api, *, now: Callable[[], dt.datetime]) -> None:
        self._api, self._now = api, now
        self._unowned: dict[str, GpuNode] = {}

    def replace(self, items: list[GpuNode]) -> None:
        """These are all."""
        self._unowned.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: GpuNode) -> None:
        """A GPUNode appeared or changed."""
        self._unowned.pop(item.metadata.name, None)
        if not item.metadata.owner_references:
            self._unowned[item.metadata.name] = item

    def remove(self, item: GpuNode) -> None:
        """It is gone."""
        self._unowned.pop(item.metadata.name, None)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Act on each; one that stays goes behind the others."""
        for name, item in list(self._unowned.items())[:MAX_LOOKS]:
            try:
                await self._settle(item)
            except (errors.NotFound, errors.Conflict) as error:
                log.debug("GPUNode %s has changed: %s", name, error)
            except errors.KubeError as error:
                log.warning("about the owner of GPUNode %s: %s; trying again", name, error)
            if self._unowned.get(name) is item:
                self._unowned[name] = self._unowned.pop(name)

    async def _settle(self, item: GpuNode) -> None:
        name = item.metadata.name
        try:
            owner = await node_reference(self._api, name)
        except errors.NotFound:
            if self._is_old(item):
                log.info("GPUNode %s is deleted: there is no such Node", name)
                await self._api.delete(GPUNODES, name, uid=item.metadata.uid)
            return
        version = item.metadata.resource_version
        body = {"metadata": {"resourceVersion": version, "ownerReferences": [owner]}}
        await self._api.merge(GPUNODES, name, body)

    def _is_old(self, item: GpuNode) -> bool:
        created = item.metadata.creation_timestamp
        return created is None or (self._now() - created).total_seconds() > GRACE_SECONDS
