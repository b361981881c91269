# SPDX-License-Identifier: Apache-2.0
"""Once a second: are limited shares kept, and who failed with whom?

A share that is exceeded is told to its owner, and after a moment in which a program may give back
what it took too much of, its processes are ended. Not by SIGTERM: who ends in the midst of kernels
can take the other clients of MPS along (on an H200, in 7 of 16 tries). So they are stopped first,
what they have given the GPU runs out, and then they are killed (0 of 7).
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
"""Kernels of programs that were stopped run out; a matrix product of 8192 takes 3 ms."""
TELL_SECONDS = 2.0
TOLD_AGAIN_SECONDS = 60.0
"""Between two events about one pod and GPU that its share is exceeded."""
ACTIONS = ("told", "ended")
"""What is done about a share that is exceeded."""
REMEMBERED_SECONDS = 60.0
"""Whose a process was that is gone."""

Tell = Callable[[Record, Said], Awaitable[None]]


class Reader(Protocol):
    """Who knows which processes use a GPU."""

    async def read(self, uuids: Iterable[str]) -> tuple[DeviceProcess, ...]:
        """The processes that use these; raises InventoryUnavailable."""

    async def stop(self) -> None:
        """Nothing is asked for the moment."""


class Guard:
    """Watches limited shares.

    Args:
        node: who holds what.
        folder: the supervisor's faults.
        reader: tells which processes use some GPUs.
        tell: writes an event about a pod.
        settings: what becomes of who exceeds his share.
        pod_of: the UID of a process' pod.

    Attributes:
        overruns: how many shares were exceeded, by what was done.
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
        """When a pod was first seen to exceed its share of a GPU."""
        self._whose: dict[int, tuple[Record, float]] = {}
        """By PID, with the moment at which it was last seen."""
        self._told_at: dict[tuple[str, str], float] = {}
        """When its owner was last told so."""
        self._told_until = time.time()
        self.overruns: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        """Do it every second, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Do it once; a driver that does not answer is asked again."""
        records = holders.live_records(self._node.observe())
        uuids = {share.uuid for _, share in limited(records)}
        if not uuids:
            # Who fails together may be gone together.
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
        """A program can take too much and give it back as often as it likes."""
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
        """A PID may be another's by now: whose it is is asked anew."""
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
        """GPUs of which limited shares were held a moment ago."""
        since = time.time() - REMEMBERED_SECONDS
        records = (record for record, at in self._whose.values() if at >= since)
        return {share.uuid for _, share in limited(records)}

    async def _say(self, record: Record, said: Said) -> None:
        """Limits hold whether the API server takes events or not."""
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
