# SPDX-License-Identifier: Apache-2.0
"""The guard of limited shares: once a second it checks limits and looks for joint failures.

If a share is exceeded, the owner gets an Event. With `GPUPACK_OVERRUN=End` the program then has a
moment to free the excess, and after that its processes are ended. They do not get SIGTERM: a
process that ends while its kernels run can make the other clients of MPS fail (on an H200, in 7 of
16 tries). So the processes are stopped first, their submitted kernels finish, and then they are
killed (0 of 7).
"""

import asyncio
import collections
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from gpupack_agent import cgroups, holders
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.holders import Record
from gpupack_agent.mps import texts
from gpupack_agent.mps.excess import Excess, excesses, limited
from gpupack_agent.mps.folder import Fault, MpsFolder
from gpupack_agent.mps.processes import DeviceProcess
from gpupack_agent.prestart import NodeState
from gpupack_agent.settings import LimitSettings
from gpupack_kubeclient.events import Said

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
DRAIN_SECONDS = 1.5
"""The time for kernels of stopped programs to finish; a matrix product of 8192 takes 3 ms."""
EVENT_SECONDS = 2.0
"""The time limit for the write of an Event."""
EVENT_INTERVAL_SECONDS = 60.0
"""The time between two Events that one pod exceeds its share of one GPU."""
ACTIONS = ("reported", "ended")
"""The actions after a share is exceeded: an Event, or the end of its processes."""
REMEMBERED_SECONDS = 60.0
"""The time for which the pod of an ended process is remembered."""

WriteEvent = Callable[[Record, Said], Awaitable[None]]


class Reader(Protocol):
    """A source of the processes that use a GPU."""

    async def read(self, uuids: Iterable[str]) -> tuple[DeviceProcess, ...]:
        """Return the processes that use these GPUs; raises InventoryUnavailable."""

    async def stop(self) -> None:
        """Release resources until the next call of `read`."""


class Guard:
    """The guard of limited shares.

    Args:
        node: the state of pods and devices.
        folder: the folder with the supervisor's faults.
        reader: lists the processes that use some GPUs.
        write_event: writes an Event about a pod.
        settings: the action after a share is exceeded.
        pod_of: returns the UID of a process's pod.

    Attributes:
        overruns: number of exceeded shares, by the action taken.
    """

    def __init__(
        self,
        node: NodeState,
        folder: MpsFolder,
        reader: Reader,
        write_event: WriteEvent,
        settings: LimitSettings,
        *,
        pod_of: Callable[[int], str | None] = cgroups.pod_of,
    ) -> None:
        self._node, self._folder, self._reader = node, folder, reader
        self._write_event, self._settings, self._pod_of = write_event, settings, pod_of
        self._since: dict[tuple[str, str], float] = {}
        """The monotonic time since when a pod exceeds its share, by pod UID and GPU UUID."""
        self._record_of: dict[int, tuple[Record, float]] = {}
        """The record of each process and the time when it was last seen, by PID."""
        self._last_event_at: dict[tuple[str, str], float] = {}
        """The monotonic time of the last Event, by pod UID and GPU UUID."""
        self._reported_until = time.time()
        self.overruns: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        """Check every second, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Check once; if the driver does not answer, the next round tries again."""
        records = holders.live_records(self._node.observe())
        uuids = {share.uuid for _, share in limited(records)}
        if not uuids:
            # Clients that fail together may also end together.
            await self._report_faults(self._recently_used_gpus())
            self._since.clear()
            await self._reader.stop()
            return
        try:
            found = await self._reader.read(uuids)
        except InventoryUnavailable as error:
            log.warning("cannot check limited shares, the driver does not answer: %s", error)
            return
        self._remember(records, found)
        await self._report_faults(uuids | self._recently_used_gpus())
        await self._enforce(excesses(records, found, self._pod_of))

    async def _enforce(self, found: tuple[Excess, ...]) -> None:
        now = time.monotonic()
        seen = {(each.record.uid, each.share.uuid): each for each in found}
        self._since = {key: at for key, at in self._since.items() if key in seen}
        for key, excess in seen.items():
            seconds = self._settings.overrun_seconds if self._settings.overrun == "End" else None
            if key not in self._since:
                self._since[key] = now
                self.overruns["reported"] += 1
                await self._report_excess(key, excess, seconds)
            elif seconds is not None and now - self._since[key] >= seconds:
                await self._end_processes(excess)

    async def _report_excess(
        self, key: tuple[str, str], excess: Excess, seconds: float | None
    ) -> None:
        """Write an Event, unless there was one recently: a program can exceed its share often."""
        now = time.monotonic()
        self._last_event_at = {
            each: at
            for each, at in self._last_event_at.items()
            if now - at < EVENT_INTERVAL_SECONDS
        }
        if key not in self._last_event_at:
            self._last_event_at[key] = now
            await self._try_write_event(excess.record, texts.exceeded(excess, seconds=seconds))

    async def _end_processes(self, excess: Excess) -> None:
        log.warning(
            "pod %s (%s): %d MiB of %d MiB of %s, left MPS: %s; ending %s",
            excess.record.title,
            excess.record.uid,
            excess.used_mib,
            excess.share.memory_mib,
            excess.share.uuid,
            excess.has_left_mps,
            excess.pids,
        )
        self._signal(excess, signal.SIGSTOP)
        await asyncio.sleep(DRAIN_SECONDS)
        self._signal(excess, signal.SIGKILL)
        self.overruns["ended"] += 1
        await self._try_write_event(excess.record, texts.ended(excess))

    def _signal(self, excess: Excess, number: signal.Signals) -> None:
        """Send a signal to the processes that still belong to the pod: PIDs can be reused."""
        for pid in excess.pids:
            if self._pod_of(pid) == excess.record.uid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _remember(self, records: Iterable[Record], found: Iterable[DeviceProcess]) -> None:
        now, by_uid = time.time(), {record.uid: record for record in records}
        for pid in {process.pid for process in found}:
            if record := by_uid.get(self._pod_of(pid) or ""):
                self._record_of[pid] = record, now
        self._record_of = {
            pid: (record, at)
            for pid, (record, at) in self._record_of.items()
            if now - at <= REMEMBERED_SECONDS
        }

    def _recently_used_gpus(self) -> set[str]:
        """Return the GPUs whose limited shares had processes within REMEMBERED_SECONDS."""
        since = time.time() - REMEMBERED_SECONDS
        records = (record for record, at in self._record_of.values() if at >= since)
        return {share.uuid for _, share in limited(records)}

    async def _try_write_event(self, record: Record, event: Said) -> None:
        """Write an Event with a time limit: limits do not depend on the API server."""
        try:
            async with asyncio.timeout(EVENT_SECONDS):
                await self._write_event(record, event)
        except TimeoutError:
            log.warning("no Event for pod %s could be written: %s", record.title, event.note)

    async def _report_faults(self, uuids: Iterable[str]) -> None:
        faults = [fault for uuid in sorted(uuids) for fault in self._folder.faults(uuid)]
        for fault in faults:
            if fault.at > self._reported_until:
                await self._report_fault(fault)
        self._reported_until = max([self._reported_until, *(fault.at for fault in faults)])

    async def _report_fault(self, fault: Fault) -> None:
        failed, exited = self._records_of(fault.clients), self._records_of(fault.exited)
        exited = {uid: record for uid, record in exited.items() if uid not in failed}
        for uid, record in failed.items():
            others = [each for other, each in failed.items() if other != uid]
            if exited:
                await self._try_write_event(record, texts.failed_by_exit(record, exited.values()))
            elif others:
                await self._try_write_event(record, texts.failed_together(record, others))
        for record in exited.values() if failed else ():
            await self._try_write_event(record, texts.made_others_fail(record, failed.values()))

    def _records_of(self, pids: Iterable[int]) -> dict[str, Record]:
        known = (self._record_of.get(pid) for pid in pids)
        return {found[0].uid: found[0] for found in known if found}
