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

from gpupack.host.process_id import ProcessId, boot_id, this_process
from gpupack_placement import DeviceUuid, Grant, Invalid, MiB, MilliGpu, NodeName, Placement

SCHEMA: Final = 1
MAX_COMMAND_CHARACTERS: Final = 120
MAX_RESERVED_SECONDS: Final = 7 * 24 * 3600.0
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
    request: str = msgspec.field(name="asked")
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
            and 0 < self.reserved_until - uptime_seconds() <= MAX_RESERVED_SECONDS
        )

    @property
    def counts_unlocked(self) -> bool:
        """Whether its GPUs are held although its file is not locked."""
        if self.reserved_until is not None:
            return self.is_reserved
        return self.kind == "holds" and self.process.is_alive()

    @property
    def owner(self) -> str:
        """The holder as text for users."""
        if self.reserved_until is not None:
            left = max(self.reserved_until - uptime_seconds(), 0)
            author = f"user {self.user} ({printable(self.command)})"
            return f"a reservation for {left:.0f} s more, by {author}"
        return f"process {self.process.pid} of user {self.user} ({printable(self.command)})"


def printable(text: str) -> str:
    """Return another user's text without control characters, for a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_COMMAND_CHARACTERS])


def decode_record(content: bytes) -> Record:
    """Parse a file's content.

    Raises:
        ValueError: gpupack did not write it.
    """
    try:
        record = msgspec.json.decode(content, type=Record)
        placement_of(record, NodeName("any"))
    except (msgspec.MsgspecError, UnicodeDecodeError, Invalid) as error:
        raise ValueError(str(error)) from error
    if record.kind == "holds" and not record.devices:
        raise ValueError("it holds nothing")
    return record


def holding_record(placement: Placement, request: str) -> Record:
    """Return the record of what this process holds."""
    devices = (HeldDevice(each.uuid, each.milli, each.memory) for each in placement.devices)
    return _own_record("holds", request, devices=tuple(devices))


def waiting_record(turn: int, request: str) -> Record:
    """Return the record of this process's turn."""
    return _own_record("waits", request, turn=turn)


def reservation_record(held: Record, seconds: float) -> Record:
    """Return the record of a reservation of `held` for the given seconds from now."""
    return msgspec.structs.replace(held, reserved_until=uptime_seconds() + seconds)


def uptime_seconds() -> float:
    """Return seconds since boot, which are the same for all processes, in any container."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def placement_of(record: Record, node: NodeName) -> Placement:
    """Return what a record holds as a Placement.

    Raises:
        InvalidPlacement: no decision can have made it.
    """
    grants = (
        Grant(DeviceUuid(each.uuid), MilliGpu(each.milli), MiB(each.memory_mib))
        for each in record.devices
    )
    return Placement(node, tuple(grants))


def _own_record(
    kind: Literal["holds", "waits"],
    request: str,
    *,
    turn: int = 0,
    devices: tuple[HeldDevice, ...] = (),
) -> Record:
    return Record(
        kind=kind,
        process=this_process(),
        user=os.getuid(),
        command=Path(sys.argv[0] if sys.argv else "").name[:MAX_COMMAND_CHARACTERS] or "python",
        since=dt.datetime.now(dt.UTC),
        request=request,
        turn=turn,
        devices=devices,
    )
