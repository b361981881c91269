# SPDX-License-Identifier: Apache-2.0
"""The node's real GPUs, read in a separate process.

A GPU whose driver calls hang is skipped, so that it hides no other GPU. It is tried again from time
to time. Until it answers it is Failed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from gpupack_agent.errors import DriverTimeout, InventoryUnavailable
from gpupack_agent.inventory import driver_files, mig_files
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.inventory.driver_process import DriverProcess, command
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.layout import Place
from gpupack_crds.gpunode import GpuDevice

log = logging.getLogger(__name__)

RETRY_SECONDS = 300.0
"""The time until a GPU whose driver call hung is tried again."""

MIN_SCAN_INTERVAL_SECONDS = 0.5
"""The least time between two scans, however many events there are: failing programs raise many."""

HANGS_RULE = "DriverTimeout"
HANGS_CAUSE = "an NVML call for this GPU timed out; see the host's kernel log"


class DriverInventory:
    """The GPUs that NVIDIA's driver shows.

    Args:
        search: finds the host's driver.
        scan_seconds: the time for which `changed` waits if there are no events.
        timeout_seconds: the time within which the driver must answer.
        run: the command that queries the driver; by default gpupack's own.
    """

    def __init__(
        self,
        search: DriverSearch,
        *,
        scan_seconds: float,
        timeout_seconds: float,
        run: Sequence[str] = (),
    ) -> None:
        self._search, self._scan_seconds = search, scan_seconds
        self._wake = asyncio.Event()
        self._process = DriverProcess(
            run or command(search), timeout_seconds=timeout_seconds, on_event=self._wake.set
        )
        self._hung: dict[int, float] = {}
        """The time of the last call that hung, monotonic seconds, by index of the GPU."""
        self._known: dict[int, tuple[GpuDevice, ...]] = {}
        """The last known devices of each GPU, by index; several if it has slices."""
        self._minors: Mapping[str, int] = {}
        self._instances: Mapping[str, tuple[int, int]] = {}
        self._forget_pending = False
        self._scanned_at = float("-inf")

    async def scan(self) -> Findings:
        """Read every GPU that answers; those that hang are Failed."""
        while True:
            if self._forget_pending:
                self._forget_pending = False
                await self._process.forget()
            try:
                findings = await self._process.scan(self._indices_to_skip())
            except DriverTimeout as hang:
                if hang.index is None:
                    raise
                log.error("GPU %d: %s", hang.index, hang)  # noqa: TRY400 - the text suffices
                self._hung[hang.index] = time.monotonic()
            else:
                self._scanned_at = time.monotonic()
                if not self._forget_pending:
                    return self._merge(findings)

    def injection(self, uuids: Sequence[str]) -> Injection:
        """Return device nodes of these GPUs and the driver's libraries; only files are read.

        Raises:
            InventoryUnavailable: the device node of a GPU is not known, or is missing for a slice.
        """
        minors, instances = self._minors, self._instances
        if unknown := [uuid for uuid in uuids if uuid not in minors]:
            raise InventoryUnavailable(
                f"the device node of {', '.join(unknown)} is not known: the last scan did not find "
                "the GPU, or the driver reports no minor number"
            )
        made = driver_files.injection(self._search, {minors[uuid] for uuid in uuids})
        slices = [uuid for uuid in uuids if uuid in instances]
        if not slices:
            return made
        found = self._search.find()
        caps = [
            node
            for uuid in slices
            for node in mig_files.capabilities(found, minors[uuid], *instances[uuid])
        ]
        # A slice is selected by its UUID: CUDA has no index for it.
        environment = {**made.environment, "CUDA_VISIBLE_DEVICES": ",".join(slices)}
        nodes = dict.fromkeys((*made.device_nodes, *(f"/dev/{node}" for node in caps)))
        return replace(
            made,
            device_nodes=tuple(nodes),
            host_nodes={**made.host_nodes, **driver_files.host_node_paths(found, caps)},
            environment=environment,
        )

    def forget(self) -> None:
        """Forget past XIDs; the driver's recovery action still counts."""
        self._forget_pending = True
        self._wake.set()

    async def partition(self, uuid: str, places: Sequence[Place]) -> None:
        """Let the driver partition the GPU."""
        await self._process.partition(uuid, places)

    async def changed(self) -> None:
        """Return at the next driver event, or when a scan is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._scan_seconds):
                await self._wake.wait()
        await asyncio.sleep(self._scanned_at + MIN_SCAN_INTERVAL_SECONDS - time.monotonic())
        self._wake.clear()

    async def close(self) -> None:
        """End the process that queries the driver."""
        await self._process.close()

    def _indices_to_skip(self) -> tuple[int, ...]:
        """Return the indices of GPUs to skip.

        No GPU is tried again while a process that hung because of a GPU has not ended.
        """
        now, is_stuck = time.monotonic(), self._process.stuck > 0
        return tuple(
            index
            for index, at in sorted(self._hung.items())
            if is_stuck or now - at < RETRY_SECONDS
        )

    def _merge(self, findings: Findings) -> Findings:
        skipped = self._indices_to_skip()
        self._hung = {index: at for index, at in self._hung.items() if index in skipped}
        found: dict[int, list[GpuDevice]] = {}
        for device in findings.devices:
            found.setdefault(device.index, []).append(device)
        self._known |= {index: tuple(devices) for index, devices in found.items()}
        self._minors, self._instances = findings.minors, findings.instances
        # A new process may number GPUs differently: one that answers at another index is fine.
        answered = {facts.uuid for facts in findings.facts}
        silent = [
            msgspec.structs.replace(
                device, health="Failed", cause=HANGS_CAUSE, causes=(HANGS_RULE,)
            )
            for index in self._hung
            for device in self._known.get(index, ())
            if (device.mig_parent or device.uuid) not in answered
        ]
        return replace(findings, devices=(*findings.devices, *silent))
