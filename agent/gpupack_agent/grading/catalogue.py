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


class XidClass(enum.StrEnum):
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


_RESET: Final = "reset the GPU, then delete this GPUNode, or reboot the node"

CLASS_GRADES: Final[Mapping[XidClass, tuple[Health, str]]] = {
    XidClass.APPLICATION: ("Healthy", ""),
    XidClass.RECORD: ("Healthy", ""),
    XidClass.RECOVERY: ("Healthy", ""),
    XidClass.CONTAINED: ("Cordoned", "reset the GPU when convenient"),
    XidClass.NVLINK: (
        "Cordoned",
        "check its links; reset all GPUs of the node if it happens again",
    ),
    XidClass.MECHANICAL: ("Degraded", "check its power connectors and cooling"),
    XidClass.CAPACITY: ("Degraded", "part of its memory is lost; have it inspected"),
    XidClass.RESET: ("Failed", _RESET),
    XidClass.RESTART: ("Failed", "restart the host"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Xid:
    """One XID of the catalogue."""

    number: int
    kind: XidClass
    name: str


def _entries() -> Iterator[Xid]:
    for kind, named in _NAMED.items():
        for number, name in named.items():
            yield Xid(number, kind, name)
    for kind, numbers in _UNNAMED.items():
        for number in numbers:
            yield Xid(number, kind, "")


_NAMED: Final[Mapping[XidClass, Mapping[int, str]]] = {
    XidClass.RECOVERY: {154: "the recovery action changed"},
    XidClass.CONTAINED: {
        94: "contained memory error",
        156: "a resource was retired",
        171: "uncorrectable memory error",
        172: "uncorrectable SRAM error",
    },
    XidClass.NVLINK: {
        74: "NVLink error",
        144: "NVLink error (SAW)",
        145: "NVLink error (RLW)",
        146: "NVLink error (TLW)",
        149: "NVLink error (NETIR)",
        150: "NVLink error (MSE)",
    },
    XidClass.MECHANICAL: {54: "clocks reduced for lack of power"},
    XidClass.CAPACITY: {157: "a resource could not be retired", 168: "reduced memory capacity"},
    XidClass.RESET: {
        46: "GPU stopped processing",
        48: "double-bit memory error",
        62: "power controller halted",
        64: "row remapping failed",
        95: "uncontained memory error",
        110: "security fault",
        119: "GSP time-out",
        120: "GSP error",
        136: "link training failed",
        140: "unrecovered memory error",
        143: "GPU initialisation failed",
        155: "NVLink software-defined error",
        158: "fatal time-out",
        167: "fatal PCIe time-out",
        169: "security processor halted",
    },
    XidClass.RESTART: {79: "GPU has fallen off the bus", 151: "key rotation error"},
}

_UNNAMED: Final[Mapping[XidClass, tuple[int, ...]]] = {
    XidClass.APPLICATION: (
        *(8, 11, 13, 25, 31, 32, *range(39, 42), 45, 60, *range(68, 73), *range(75, 78), 80),
        *(*range(82, 87), 88, 89, *range(96, 106), 109, *range(126, 136), 139),
    ),
    XidClass.RECORD: (
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
    health, advice = CLASS_GRADES[known.kind]
    if health == "Healthy":
        return None
    return Finding(known.kind.value, health, f"XID {number}: {known.name}: {advice}")
