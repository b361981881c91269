# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of a node get no new work, as what its agent says of them goes by.

    (not listed) ─ Draining, Failed ─► Quarantined ─ better ─► Probation ─ time ─► (not listed)
                                           ▲                       │
                                           └── Draining, Failed ───┘ the next one is twice as long

What the agent says is a fact of the moment; what follows stands here, so a restart of any part
heals nothing. «Better» has lasted already: the agent says it late (agent.hysteresisSeconds).
Whoever removes an entry has its GPU used at once, unless it is Draining or Failed still.
"""

import datetime as dt
from typing import Final

from msgspec import structs

from gpupack_crds.gpunode import MAX_GPUS, MAX_RELAPSES, GpuDevice, Quarantine
from gpupack_crds.kinds import GpuNode
from gpupack_operator.decision import times

ILL: Final = {"Draining", "Failed"}

NOT_LOOKED_AT: Final = ("NotLookedAt",)
"""The agent's rule for a driver that hangs: of the GPUs it says nothing."""

MOST_DOUBLINGS: Final = 8


def needs_look(node: GpuNode) -> bool:
    """Whether there is anything to decide."""
    return bool(node.spec.quarantine) or any(map(_is_ill, node.status.devices))


def decided(
    node: GpuNode, now: dt.datetime, *, probation_seconds: float
) -> tuple[tuple[Quarantine, ...], dt.datetime | None]:
    """The entries as they are to be, and when to look again where nothing changes until then."""
    if node.status.mode == "observed":
        return (), None
    ill = _ill(node.status.devices)
    known = {each.mig_parent or each.uuid for each in node.status.devices}
    entries, again_at = list[Quarantine](), list[dt.datetime]()
    for entry in node.spec.quarantine:
        # Before its first look an agent knows of no GPUs.
        if known and entry.gpu not in known:
            continue
        found = _next(entry, ill.pop(entry.gpu, None), now)
        ends_at = _ends_at(found, now, probation_seconds)
        if ends_at is None:
            entries.append(found)
        elif ends_at > now:
            entries.append(found)
            again_at.append(ends_at)
    for gpu, device in ill.items():
        entries.append(Quarantine(gpu=gpu, cause=device.cause, since=times.write(now)))
    return tuple(entries[:MAX_GPUS]), min(again_at, default=None)


def _next(entry: Quarantine, ill: GpuDevice | None, now: dt.datetime) -> Quarantine:
    since = times.write(now)
    if entry.phase == "Quarantined":
        return entry if ill else structs.replace(entry, phase="Probation", since=since)
    if ill is None:
        return entry if entry.since else structs.replace(entry, since=since)
    relapses = min(entry.relapses + 1, MAX_RELAPSES)
    return structs.replace(
        entry, phase="Quarantined", cause=ill.cause, since=since, relapses=relapses
    )


def _ends_at(entry: Quarantine, now: dt.datetime, seconds: float) -> dt.datetime | None:
    """When it is over; None: that is not known."""
    if entry.phase == "Quarantined":
        return None
    since = times.read(entry.since) if entry.since else now
    return times.after(since, seconds * 2.0 ** min(entry.relapses, MOST_DOUBLINGS))


def _ill(devices: tuple[GpuDevice, ...]) -> dict[str, GpuDevice]:
    """By GPU: of MIG slices it is the GPU that they are part of."""
    return {each.mig_parent or each.uuid: each for each in devices if _is_ill(each)}


def _is_ill(device: GpuDevice) -> bool:
    return device.health in ILL and device.causes != NOT_LOOKED_AT
