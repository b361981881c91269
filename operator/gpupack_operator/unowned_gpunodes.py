# SPDX-License-Identifier: Apache-2.0
"""GPUNodes without an owner: each gets its Node as owner, or is deleted if it has no Node.

Agents create GPUNodes with the Node as owner, and the garbage collector deletes them with the Node.
A GPUNode that a person wrote has no owner, and would outlive its Node.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from typing import Final

from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.node_owner import node_reference

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 2.0
MAX_CHECKS: Final = 20
"""Largest number of GPUNodes in one pass."""
GRACE_SECONDS: Final = 60.0
"""Minimum age of a GPUNode that is deleted: its Node may not be registered yet."""


class UnownedGpuNodes:
    """Reflector's store, and the task that acts.

    Args:
        api: the API server with GPUNodes and Nodes.
        now: returns the API server's time.
    """

    def __init__(self, api: Api, *, now: Callable[[], dt.datetime]) -> None:
        self._api, self._now = api, now
        self._unowned: dict[str, GpuNode] = {}

    def replace(self, items: list[GpuNode]) -> None:
        """Replace all GPUNodes by these."""
        self._unowned.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: GpuNode) -> None:
        """Store a new or changed GPUNode."""
        self._unowned.pop(item.metadata.name, None)
        if not item.metadata.owner_references:
            self._unowned[item.metadata.name] = item

    def remove(self, item: GpuNode) -> None:
        """Remove a deleted GPUNode."""
        self._unowned.pop(item.metadata.name, None)

    async def run(self) -> None:
        """Check in an endless loop."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Process each GPUNode; one that stays goes to the end."""
        for name, item in list(self._unowned.items())[:MAX_CHECKS]:
            try:
                await self._settle(item)
            except (errors.NotFound, errors.Conflict) as error:
                log.debug("GPUNode %s has changed: %s", name, error)
            except errors.KubeError as error:
                log.warning("cannot set the owner of GPUNode %s: %s; trying again", name, error)
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
