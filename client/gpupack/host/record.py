# SPDX-License-Identifier: Apache-2.0
"""What one process holds or waits for, as it stands in its file.

Who holds it is not what the file says but who has it locked. PID, user and command are for people.
A reservation alone is held by what its file says: until its time is over, whoever lives.
"""

import datetime as dt
import os
import sys
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

import gpupack_core as core
from gpupack.host.process_id import ProcessId, boot_id, this_process

SCHEMA: Final = 1
LONGEST_COMMAND: Final = 120
LONGEST_RESERVED_SECONDS: Final = 7 * 24 * 3600.0
"""More is nobody's reservation: it would outlive whoever could give it back."""


class HeldDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU or a share of it: thousandths of its time, MiB of its memory."""

    uuid: str
    milli: int
    memory_mib: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        kind: what it is that the process does.
        turn: of one that waits; the lowest is first.
        process: who it is; a folder that two machines share is noticed by its boot.
        devices: what is held; nothing while it waits.
        reserved_until: of a reservation, when it ends: seconds of `uptime_seconds()`. The wall
            clock can be set. None: it ends with its process.
    """

    kind: Literal["holds", "waits"]
    process: ProcessId
    user: int
    command: str
    since: dt.datetime
    asked: str
    turn: int = 0
    devices: tuple[HeldDevice, ...] = ()
    reserved_until: float | None = None
    schema: Literal[1] = SCHEMA

    @property
    def is_reserved(self) -> bool:
        """Whether it is a reservation whose time is not over; none outlives a boot."""
        return (
            self.reserved_until is not None
            and self.process.boot == boot_id()
            and 0 < self.reserved_until - uptime_seconds() <= LONGEST_RESERVED_SECONDS
        )

    @property
    def counts_unlocked(self) -> bool:
        """Whether what it holds is held though nobody has its file locked."""
        if self.reserved_until is not None:
            return self.is_reserved
        return self.kind == "holds" and self.process.is_there()

    @property
    def owner(self) -> str:
        """For people."""
        if self.reserved_until is not None:
            left = max(self.reserved_until - uptime_seconds(), 0)
            whose = f"user {self.user} ({shown(self.command)})"
            return f"a reservation for {left:.0f} s more, by {whose}"
        return f"process {self.process.pid} of user {self.user} ({shown(self.command)})"


def shown(text: str) -> str:
    """Another user's words, which command no terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:LONGEST_COMMAND])


def decoded(content: bytes) -> Record:
    """A file's content.

    Raises:
        ValueError: nobody of us wrote this.
    """
    try:
        record = msgspec.json.decode(content, type=Record)
        placement_of(record, core.NodeName("any"))
    except (msgspec.MsgspecError, UnicodeDecodeError, core.Invalid) as error:
        raise ValueError(str(error)) from error
    if record.kind == "holds" and not record.devices:
        raise ValueError("it holds nothing")
    return record


def holding(placement: core.Placement, asked: str) -> Record:
    """Of this process."""
    devices = (HeldDevice(each.uuid, each.milli, each.memory) for each in placement.devices)
    return _of_this_process("holds", asked, devices=tuple(devices))


def waiting(turn: int, asked: str) -> Record:
    """Of this process."""
    return _of_this_process("waits", asked, turn=turn)


def reserved(held: Record, seconds: float) -> Record:
    """What this process holds, from now on for so long instead."""
    return msgspec.structs.replace(held, reserved_until=uptime_seconds() + seconds)


def uptime_seconds() -> float:
    """Since the machine started, as all of its processes count, in whichever container."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def placement_of(record: Record, node: core.NodeName) -> core.Placement:
    """What it holds, as core has it.

    Raises:
        InvalidPlacement: no decision can have made this.
    """
    grants = (
        core.Grant(core.DeviceUuid(each.uuid), core.MilliGpu(each.milli), core.MiB(each.memory_mib))
        for each in record.devices
    )
    return core.Placement(node, tuple(grants))


def _of_this_process(
    kind: Literal["holds", "waits"],
    asked: str,
    *,
    turn: int = 0,
    devices: tuple[HeldDevice, ...] = (),
) -> Record:
    return Record(
        kind=kind,
        process=this_process(),
        user=os.getuid(),
        command=Path(sys.argv[0] if sys.argv else "").name[:LONGEST_COMMAND] or "python",
        since=dt.datetime.now(dt.UTC),
        asked=asked,
        turn=turn,
        devices=devices,
    )
