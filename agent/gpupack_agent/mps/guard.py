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
from gpupack_kube.events import Said

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
DRAIN_SECONDS = 1.5
"""The time for kernels of stopped programs to finish; a matrix product of 8192 takes 3 ms."""
TELL_SECONDS = 2.0
"""The time limit for the write of an Event."""
TOLD_AGAIN_SECONDS = 60.0
"""The time between two Events that one pod exceeds its share of one GPU."""
ACTIONS = ("told", "ended")
"""The actions after a share is exceeded: an Event, or the end of its processes."""
REMEMBERED_SECONDS = 60.0
"""The time for which the pod of an ended process is remembered."""

Tell = Callable[[Record, Said], Awaitable[None]]


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
        tell: writes an Event about a pod.
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
        tell: Tell,
        settings: LimitSettings,
        *,
        pod_of: Callable[[int], str | None] = cgroups.pod_of,
    ) -> None:
        self._node, self._folder, self._reader = node, folder, reader
        self._tell, self._settings, self._pod_of = tell, settings, pod_of
        self._since: dict[tuple[str, str], float] = {}
        """The monotonic time since when a pod exceeds its share, by pod UID and GPU UUID."""
        self._whose: dict[int, tuple[Record, float]] = {}
        """The record of each process and the time when it was last seen, by PID."""
        self._told_at: dict[tuple[str, str], float] = {}
        """The monotonic time of the last Event, by pod UID and GPU UUID."""
        self._told_until = time.time()
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
            await self._tell_faults(self._left())
            self._since.clear()
            await self._reader.stop()
            return
        try:
            found = await self._reader.read(uuids)
        except InventoryUnavailable as error:
            log.warning("limited shares are not watched, the driver does not answer: %s", error)
            return
        self._remember(records, found)
        await self._tell_faults(uuids | self._left())
        await self._judge(excesses(records, found, self._pod_of))

    async def _judge(self, found: tuple[Excess, ...]) -> None:
        now = time.monotonic()
        seen = {(each.record.uid, each.share.uuid): each for each in found}
        self._since = {key: at for key, at in self._since.items() if key in seen}
        for key, excess in seen.items():
            seconds = self._settings.overrun_seconds if self._settings.overrun == "End" else None
            if key not in self._since:
                self._since[key] = now
                self.overruns["told"] += 1
                await self._warn(key, excess, seconds)
            elif seconds is not None and now - self._since[key] >= seconds:
                await self._end(excess)

    async def _warn(self, key: tuple[str, str], excess: Excess, seconds: float | None) -> None:
        """Write an Event, unless there was one recently: a program can exceed its share often."""
        now = time.monotonic()
        self._told_at = {
            each: at for each, at in self._told_at.items() if now - at < TOLD_AGAIN_SECONDS
        }
        if key not in self._told_at:
            self._told_at[key] = now
            await self._say(excess.record, texts.exceeded(excess, seconds=seconds))

    async def _end(self, excess: Excess) -> None:
        log.warning(
            "pod %s (%s): %d MiB of %d MiB of %s, left MPS: %s; ends %s",
            excess.record.title,
            excess.record.uid,
            excess.used_mib,
            excess.share.memory_mib,
            excess.share.uuid,
            excess.has_left,
            excess.pids,
        )
        self._signal(excess, signal.SIGSTOP)
        await asyncio.sleep(DRAIN_SECONDS)
        self._signal(excess, signal.SIGKILL)
        self.overruns["ended"] += 1
        await self._say(excess.record, texts.ended(excess))

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
                self._whose[pid] = record, now
        self._whose = {
            pid: (record, at)
            for pid, (record, at) in self._whose.items()
            if now - at <= REMEMBERED_SECONDS
        }

    def _left(self) -> set[str]:
        """Return the GPUs whose limited shares had processes within REMEMBERED_SECONDS."""
        since = time.time() - REMEMBERED_SECONDS
        records = (record for record, at in self._whose.values() if at >= since)
        return {share.uuid for _, share in limited(records)}

    async def _say(self, record: Record, said: Said) -> None:
        """Write an Event with a time limit: limits do not depend on the API server."""
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._tell(record, said)
        except TimeoutError:
            log.warning("pod %s is not told: %s", record.title, said.note)

    async def _tell_faults(self, uuids: Iterable[str]) -> None:
        faults = [fault for uuid in sorted(uuids) for fault in self._folder.faults(uuid)]
        for fault in faults:
            if fault.at > self._told_until:
                await self._tell_fault(fault)
        self._told_until = max([self._told_until, *(fault.at for fault in faults)])

    async def _tell_fault(self, fault: Fault) -> None:
        failed, left = self._pods(fault.clients), self._pods(fault.left)
        left = {uid: record for uid, record in left.items() if uid not in failed}
        for uid, record in failed.items():
            others = [each for other, each in failed.items() if other != uid]
            if left:
                await self._say(record, texts.was_taken_along(record, left.values()))
            elif others:
                await self._say(record, texts.failed_together(record, others))
        for record in left.values() if failed else ():
            await self._say(record, texts.took_along(record, failed.values()))

    def _pods(self, pids: Iterable[int]) -> dict[str, Record]:
        known = (self._whose.get(pid) for pid in pids)
        return {found[0].uid: found[0] for found in known if found}
