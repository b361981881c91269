# SPDX-License-Identifier: Apache-2.0
"""The writer of this node's GPUNode: it creates a missing one and writes each change.

The Node owns the GPUNode, which is deleted with it. Without a Node none is created.

The status is replaced as a whole and not patched, because a merge patch needs an explicit null to
remove a field. A Conflict means that another component wrote the object, or that it was deleted and
created again. Then the object is read again.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import math
import time

import msgspec
import tenacity

from gpupack_agent.report import Report, usage_in
from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus
from gpupack_crds.kinds import GPUNODES, GpuNode, status_body
from gpupack_crds.times import format_time
from gpupack_kubeclient import client, errors, objects
from gpupack_kubeclient.node_owner import node_reference, went_with_node

log = logging.getLogger(__name__)

COMPARE_SECONDS = 1.0
"""The time between two comparisons of the present status with the written one, both in memory. A
change of the GPUs does not wait for it."""
USAGE_SECONDS = 5.0
"""The time between two writes that only change the use of the GPUs: all watchers of GPUNodes read
them."""
RECHECK_SECONDS = 60.0
"""The time between two reads of the GPUNode when nothing changes: it may have been deleted."""
LAYOUT_SECONDS = 20.0
"""RECHECK_SECONDS of a node with GPUs that may be partitioned: the requested layout may change."""


class GpuNodeWriter:
    """The writer that keeps the GPUNode equal to the report."""

    def __init__(self, api: client.Api, report: Report, *, node: str) -> None:
        self._api = api
        self.report = report
        self._node = node
        self._written_status = GpuNodeStatus()
        self._found = objects.ObjectMeta()
        """The metadata of the GPUNode that was last read."""
        self._checked_at = 0.0
        self.written = asyncio.Event()

    def age_seconds(self) -> float:
        """Return the seconds since the GPUNode last equalled the agent's view; infinite: never."""
        return time.monotonic() - self._checked_at if self._checked_at else math.inf

    async def restore(self) -> None:
        """Read or create the GPUNode, restore the state that it records, write it.

        Raises:
            KubeError: a call to the API server failed.
        """
        current = await self._read()
        self.report.restore(current.status)
        await self._write(current)

    async def run(self) -> None:
        """Begin, then write each change of the report, until cancelled."""
        retrying = tenacity.AsyncRetrying(
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=10.0),
            retry=tenacity.retry_if_exception_type(errors.KubeError),
            before_sleep=_log_retry,
        )
        change = self.report.node.known_devices.next_change
        await retrying(self.restore)
        self.written.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMPARE_SECONDS):
                    await change.wait()
            change = self.report.node.known_devices.next_change
            if self.is_due():
                await retrying(self.refresh)

    def is_due(self) -> bool:
        """Tell whether the GPUNode has to be written or compared again."""
        unchecked_seconds = time.monotonic() - self._checked_at
        recheck_seconds = LAYOUT_SECONDS if self.report.layouts.may_change else RECHECK_SECONDS
        if unchecked_seconds >= recheck_seconds:
            return True
        wanted = self.report.status(self._written_status)
        if unchecked_seconds < USAGE_SECONDS:
            wanted = msgspec.structs.replace(wanted, **usage_in(self._written_status))
        return wanted != self._written_status

    async def refresh(self) -> None:
        """Read the GPUNode, and write it if the report differs."""
        await self._write(await self._read())

    async def _read(self) -> GpuNode:
        """Read the GPUNode, or create it if it is missing.

        If an administrator deleted it, the state that only it recorded is forgotten. The present
        one may have been created by another component. If the GPUNode was deleted with its Node, no
        administrator deleted it: its errors still count.
        """
        try:
            found = await self._api.get(GPUNODES, self._node)
            is_another = self._found.uid != found.metadata.uid
        except errors.NotFound:
            owner = await node_reference(self._api, self._node)
            found, is_another = await self._api.create(GPUNODES, _new_body(self._node, owner)), True
        if is_another and self._checked_at > 0 and not went_with_node(self._found, found.metadata):
            self.report.forget()
        self._found = found.metadata
        return found

    async def _write(self, current: GpuNode) -> None:
        self.report.layouts.request(current.spec.mig_layouts)
        recorded = msgspec.structs.replace(current.status, observed_at=None)
        wanted = self.report.status(recorded)
        if recorded != wanted:
            await self._replace(current, wanted)
        self._written_status, self._checked_at = wanted, time.monotonic()
        self.report.layouts.record_announced(wanted.mig_gpus)

    async def _replace(self, current: GpuNode, wanted: GpuNodeStatus) -> None:
        now = format_time(dt.datetime.now(dt.UTC))
        status = msgspec.structs.replace(wanted, observed_at=now)
        body = status_body("GPUNode", current.metadata, status)
        await self._api.replace(GPUNODES, self._node, body, subresource="status")
        log.info(
            "GPUNode %s: %s, %d GPUs, %d healthy, %d holders",
            self._node,
            wanted.mode,
            wanted.gpus,
            wanted.healthy,
            len(wanted.holders),
        )


def _new_body(node: str, owner: objects.Json) -> objects.Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": node, "ownerReferences": [owner]},
        "spec": {},
    }


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("writing the GPUNode: %s; trying again", error)
