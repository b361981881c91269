# SPDX-License-Identifier: Apache-2.0
"""The record of what one process holds or waits for, in its file.

The lock on the file identifies the holder, not the file's content. PID, user and command are for
users. Only a reservation is held by its content: until its time is over, whichever process lives.
"""

import datetime as dt
import os
import sys
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

import gpupack_placement as core
from gpupack.host.process_id import ProcessId, boot_id, this_process

SCHEMA: Final = 1
LONGEST_COMMAND: Final = 120
LONGEST_RESERVED_SECONDS: Final = 7 * 24 * 3600.0
"""Maximum duration of a reservation, so that it does not outlive its author for long."""


class HeldDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU or a share of it: thousandths of its time, MiB of its memory."""

    uuid: str
    milli: int
    memory_mib: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        kind: whether the process holds or waits.
        turn: for a waiting process; the lowest is first.
        process: identity of the process; its boot ID reveals a folder that two machines share.
        devices: what is held; nothing while it waits.
        reserved_until: end of a reservation, in seconds of `uptime_seconds()`, since the wall clock
            can be set. None: it ends with its process.
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
        """Whether its GPUs are held although its file is not locked."""
        if self.reserved_until is not None:
            return self.is_reserved
        return self.kind == "holds" and self.process.is_there()

    @property
    def owner(self) -> str:
        """The holder, for users."""
        if self.reserved_until is not None:
            left = max(self.reserved_until - uptime_seconds(), 0)
            whose = f"user {self.user} ({shown(self.command)})"
            return f"a reservation for {left:.0f} s more, by {whose}"
        return f"process {self.process.pid} of user {self.user} ({shown(self.command)})"


def shown(text: str) -> str:
    """Return another user's text without control characters, for a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:LONGEST_COMMAND])


def decoded(content: bytes) -> Record:
    """Parse a file's content.

    Raises:
        ValueError: gpupack did not write it.
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
    """Return the record of what this process holds."""
    devices = (HeldDevice(each.uuid, each.milli, each.memory) for each in placement.devices)
    return _of_this_process("holds", asked, devices=tuple(devices))


def waiting(turn: int, asked: str) -> Record:
    """Return the record of this process's turn."""
    return _of_this_process("waits", asked, turn=turn)


def reserved(held: Record, seconds: float) -> Record:
    """Return the record of a reservation of `held` for the given seconds from now."""
    return msgspec.structs.replace(held, reserved_until=uptime_seconds() + seconds)


def uptime_seconds() -> float:
    """Return seconds since boot, which are the same for all processes, in any container."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def placement_of(record: Record, node: core.NodeName) -> core.Placement:
    """Return what a record holds as a Placement.

    Raises:
        InvalidPlacement: no decision can have made it.
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
