# SPDX-License-Identifier: Apache-2.0
"""This node's GPUNode: created where it is missing, written when something changes.

The status is replaced as a whole, not patched: a merge patch cannot take a field away. No other
part writes it; a Conflict only means that we have not read our own last write, or that somebody
deleted and made it anew.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from typing import Any

import msgspec
import tenacity

from gpupack_agent import __version__
from gpupack_agent.inventory.base import Findings
from gpupack_agent.roster import Roster
from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kube import client, errors

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
"""Between two looks at the GPUNode when nothing changes: somebody may have deleted it."""


def status(findings: Findings) -> GpuNodeStatus:
    """Describe what a node has; without the moment, so that equal findings are equal."""
    devices = findings.devices
    return GpuNodeStatus(
        mode="owned",
        devices=devices,
        gpus=len(devices),
        healthy=sum(device.health == "Healthy" for device in devices),
        model=", ".join(sorted({device.model for device in devices})),
        simulated=any(device.simulated for device in devices),
        driver_version=findings.driver_version,
        cuda_version=findings.cuda_version,
        agent_version=__version__,
    )


class GpuNodeWriter:
    """Keeps the GPUNode equal to the roster."""

    def __init__(self, api: client.Api, roster: Roster, *, node: str) -> None:
        self._api = api
        self._roster = roster
        self._node = node
        self.written = asyncio.Event()

    async def begin(self) -> None:
        """Read or create the GPUNode, recall the GPUs that it records, write it.

        Raises:
            KubeError: the API server could not be asked.
        """
        current = await self._read()
        self._roster.recall(current.status.devices)
        await self._write(current)

    async def run(self) -> None:
        """Begin, then keep up with the roster, until cancelled."""
        retrying = tenacity.AsyncRetrying(
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=10.0),
            retry=tenacity.retry_if_exception_type(errors.KubeError),
            before_sleep=_report,
        )
        change = self._roster.next_change
        await retrying(self.begin)
        self.written.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await change.wait()
            change = self._roster.next_change
            await retrying(self._refresh)

    async def _refresh(self) -> None:
        await self._write(await self._read())

    async def _read(self) -> GpuNode:
        """A GPUNode that was deleted is made anew, without the GPUs that are gone."""
        try:
            return await self._api.get(GPUNODES, self._node)
        except errors.NotFound:
            self._roster.forget_gone()
            return await self._api.create(GPUNODES, _new(self._node))

    async def _write(self, current: GpuNode) -> None:
        wanted = status(self._roster.findings)
        if msgspec.structs.replace(current.status, observed_at=None) == wanted:
            return
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _new(self._node) | {
            "status": client.encode(msgspec.structs.replace(wanted, observed_at=now))
        }
        body["metadata"]["resourceVersion"] = current.metadata.resource_version
        await self._api.replace(GPUNODES, self._node, body, subresource="status")
        log.info("GPUNode %s: %d GPUs, %d healthy", self._node, wanted.gpus, wanted.healthy)


def _new(node: str) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": node},
        "spec": {},
    }


def _report(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("writing the GPUNode: %s; trying again", error)
