# SPDX-License-Identifier: Apache-2.0
"""XIDs by the immediate action that NVIDIA's catalogue requests, and their grades.

Source: «Xid Errors», Xid catalogue for Ampere and newer, column «Resolution Bucket (Immediate
Action)», https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. For XIDs without an
action there the description decides. Numbers that it does not list have no effect.

An XID that a program can raise at will must not take a GPU from other users. So XIDs whose action
is to restart the application have no effect. 109 (a context switch timed out) is among them
although the catalogue requests a reset: programs can cause it, and if the GPU itself hangs, the
driver shows that by its recovery action. Likewise 154 only means that the recovery action changed.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Final

from gpupack_agent.grading.grade import Finding
from gpupack_crds.gpunode import Health


class Class(enum.StrEnum):
    """The kinds of XIDs; the value is the name of their common rule."""

    APPLICATION = "XidApplication"
    RECORD = "XidRecord"
    RECOVERY = "XidRecoveryAction"
    CONTAINED = "XidContainedError"
    NVLINK = "XidNvlink"
    MECHANICAL = "XidMechanical"
    CAPACITY = "XidCapacity"
    RESET = "XidResetGpu"
    RESTART = "XidRestartHost"


_RESET: Final = "reset the GPU, then delete this GPUNode, or boot the node"

MEANING: Final[Mapping[Class, tuple[Health, str]]] = {
    Class.APPLICATION: ("Healthy", ""),
    Class.RECORD: ("Healthy", ""),
    Class.RECOVERY: ("Healthy", ""),
    Class.CONTAINED: ("Draining", "reset the GPU when convenient"),
    Class.NVLINK: ("Draining", "look at its links; reset all GPUs of the node if it comes again"),
    Class.MECHANICAL: ("Degraded", "look at its power connectors and cooling"),
    Class.CAPACITY: ("Degraded", "part of its memory is lost; have it looked at"),
    Class.RESET: ("Failed", _RESET),
    Class.RESTART: ("Failed", "restart the host"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Xid:
    """One XID of the catalogue."""

    number: int
    kind: Class
    name: str


def _entries() -> Iterator[Xid]:
    for kind, named in _NAMED.items():
        for number, name in named.items():
            yield Xid(number, kind, name)
    for kind, numbers in _PLAIN.items():
        for number in numbers:
            yield Xid(number, kind, "")


_NAMED: Final[Mapping[Class, Mapping[int, str]]] = {
    Class.RECOVERY: {154: "the recovery action changed"},
    Class.CONTAINED: {
        94: "contained memory error",
        156: "a resource was retired",
        171: "uncorrectable error of its memory",
        172: "uncorrectable error of its SRAM",
    },
    Class.NVLINK: {
        74: "NVLink error",
        144: "NVLink error (SAW)",
        145: "NVLink error (RLW)",
        146: "NVLink error (TLW)",
        149: "NVLink error (NETIR)",
        150: "NVLink error (MSE)",
    },
    Class.MECHANICAL: {54: "its clocks are held down for lack of power"},
    Class.CAPACITY: {157: "a resource could not be retired", 168: "less memory than it has"},
    Class.RESET: {
        46: "it stopped processing",
        48: "double-bit memory error",
        62: "its power controller halted",
        64: "a row could not be remapped",
        95: "uncontained memory error",
        110: "security fault",
        119: "GSP time-out",
        120: "GSP error",
        136: "link training failed",
        140: "unrecovered memory error",
        143: "it could not be initialised",
        155: "NVLink error defined by software",
        158: "fatal time-out",
        167: "fatal time-out of PCIe",
        169: "its security processor halted",
    },
    Class.RESTART: {79: "it fell off the bus", 151: "key rotation error"},
}

_PLAIN: Final[Mapping[Class, tuple[int, ...]]] = {
    Class.APPLICATION: (
        *(8, 11, 13, 25, 31, 32, *range(39, 42), 45, 60, *range(68, 73), *range(75, 78), 80),
        *(*range(82, 87), 88, 89, *range(96, 106), 109, *range(126, 136), 139),
    ),
    Class.RECORD: (
        *(14, 37, 38, 43, 44, 63, 66, 67, 78, 92, 93, 106, 107, 108, 121, 137, 141, 142),
        *(147, 148, 152, 153, 159, 160, 161, 162, 163, 164, 165, 166, 170),
    ),
}

CATALOGUE: Final[Mapping[int, Xid]] = {each.number: each for each in _entries()}


def finding(number: int) -> Finding | None:
    """Return the finding of an XID against the GPU that raised it; None: it has no effect."""
    known = CATALOGUE.get(number)
    if known is None:
        return None
    health, advice = MEANING[known.kind]
    if health == "Healthy":
        return None
    return Finding(known.kind.value, health, f"XID {number}: {known.name}: {advice}")


def matters(number: int) -> bool:
    """Tell whether an XID changes the grade of a GPU."""
    return finding(number) is not None
