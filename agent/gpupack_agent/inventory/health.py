# SPDX-License-Identifier: Apache-2.0
"""What the driver's words about a GPU mean for handing it out.

Two sources, the worse one counts. The recovery action (NVML field 230) is a state: what it says is
over when the driver says so. XIDs are events, and a GPU may look well after one without being so:
they count until the node boots, or until somebody says that the GPU was mended, by deleting the
node's GPUNode. Until then they stand in GPUNode, so that a new agent knows of them. The XID classes
follow NVIDIA's
catalogue; those that only say that an application erred (13, 31, 43, 45, 68, 109) or that are for
the record (63, 92) change nothing.
"""

from collections.abc import Iterable

from gpupack_crds.gpunode import Health

Grade = tuple[Health, str]
"""A grade and its cause."""

HEALTHY: Grade = ("Healthy", "")

_RECOVERY: dict[int, Grade] = {
    0: HEALTHY,
    1: ("Failed", "the driver asks for a reset of the GPU"),
    2: ("Failed", "the driver asks for a reboot of the node"),
    3: ("Degraded", "the driver asks to drain peer-to-peer work"),
    4: ("Degraded", "the driver asks to drain the GPU, then to reset it"),
    5: ("Degraded", "the driver asks to recover the IMEX domain"),
    6: ("Failed", "the driver asks for a reset of the bus"),
    7: ("Failed", "the driver asks for a reboot of the system"),
}

_RESET = "reset the GPU, then delete this GPUNode, or boot the node"
_XIDS: dict[int, Grade] = {
    48: ("Failed", f"double-bit memory error: {_RESET}"),
    64: ("Failed", f"a row could not be remapped: {_RESET}"),
    74: ("Degraded", "NVLink error: keep multi-GPU work away"),
    79: ("Failed", "the GPU fell off the bus: restart the host"),
    94: ("Degraded", "contained memory error: reset the GPU when convenient"),
    95: ("Failed", f"uncontained memory error: {_RESET}"),
    119: ("Failed", f"GSP time-out: {_RESET}"),
    120: ("Failed", f"GSP error: {_RESET}"),
    140: ("Failed", f"unrecovered memory error: {_RESET}"),
}

_ORDER: tuple[Health, ...] = ("Healthy", "Degraded", "Failed")


def grade(recovery_action: int | None, xids: Iterable[int]) -> Grade:
    """Grade a GPU; `recovery_action` is None where the driver does not tell."""
    grades = [HEALTHY, _recovery_grade(recovery_action)]
    grades += [_xid_grade(xid) for xid in sorted(xids)]
    return max(grades, key=lambda each: _ORDER.index(each[0]))


def is_worse(one: Health, other: Health) -> bool:
    """Whether the first is worse than the second."""
    return _ORDER.index(one) > _ORDER.index(other)


def matters(xid: int) -> bool:
    """Whether an XID changes the grade of a GPU."""
    return xid in _XIDS


def _recovery_grade(action: int | None) -> Grade:
    if action is None:
        return HEALTHY
    return _RECOVERY.get(action, ("Degraded", f"the driver asks for unknown action {action}"))


def _xid_grade(xid: int) -> Grade:
    if xid not in _XIDS:
        return HEALTHY
    health, cause = _XIDS[xid]
    return health, f"XID {xid}: {cause}"
