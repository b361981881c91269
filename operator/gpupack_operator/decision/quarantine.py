# SPDX-License-Identifier: Apache-2.0
"""Decision which GPUs of a node get no new work, from what its agent reports over time.

    (not listed) ─ Cordoned, Failed ─► Quarantined ─ better ─► Probation ─ time ─► (not listed)
                                           ▲                       │
                                           └── Cordoned, Failed ───┘ the next one is twice as long

Where GPUs are tested before they are used, a burn-in decides instead of time:

    Quarantined ─ better ─► Acceptance ─ passed ─► (not listed), or Slow against others of its model
    (new)       ──────────►     │ failed ─► Quarantined, for a while that doubles with each relapse
                                └ no verdict ─► Probation

The agent reports the current state; the phase is stored here, so a restart of any component makes
no GPU healthy. «Better» has already lasted for a while: the agent reports it late
(agent.hysteresisSeconds). After an administrator removes an entry, the GPU is used at once, unless
it is still Cordoned or Failed, or is new where new GPUs are tested: then set its phase to
Probation. An administrator who deletes a GPUNode, so that its errors no longer count, has repaired
GPUs: those that were quarantined are tested as if they were new. If a GPUNode was deleted with its
Node, no GPU was repaired: the entries continue wherever the GPUs appear again.
"""

import dataclasses
import datetime as dt
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import structs

from gpupack_crds.acceptance import Acceptance
from gpupack_crds.gpunode import (
    MAX_GPUS,
    MAX_RELAPSES,
    TAKES_WORK,
    GpuDevice,
    Measured,
    Phase,
    Quarantine,
)
from gpupack_crds.kinds import GpuNode
from gpupack_crds.times import format_time
from gpupack_operator.decision import acceptance, times
from gpupack_operator.decision.fleet import Fleet

UNHEALTHY: Final = {"Cordoned", "Failed"}

NOT_INSPECTED: Final = ("NotInspected",)
"""The agent's rule for a driver that hangs: it says nothing about the GPUs."""

MAX_DOUBLINGS: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the decision.

    Attributes:
        probation_seconds: how long a GPU must have stayed healthy; also how long a GPU that failed
            its burn-in is not tested again.
        acceptance: how GPUs are tested; None: time alone decides.
        fleet: measurements of other GPUs.
    """

    probation_seconds: float
    acceptance: Acceptance | None = None
    fleet: Fleet = dataclasses.field(default_factory=Fleet)

    def after(self, entry: Quarantine, now: dt.datetime) -> dt.datetime:
        """Return the end of an entry's period, which doubles with each relapse."""
        since = times.read(entry.since) if entry.since else now
        doubled = 2.0 ** min(entry.relapses, MAX_DOUBLINGS)
        return times.after(since, self.probation_seconds * doubled)


def needs_decision(node: GpuNode, rules: Rules) -> bool:
    """Tell whether there is anything to decide."""
    if node.spec.quarantine or any(map(_is_unhealthy, node.status.devices)):
        return True
    return bool(rules.acceptance and rules.acceptance.new(node))


def decide_entries(
    node: GpuNode,
    now: dt.datetime,
    rules: Rules,
    *,
    repaired: Collection[str] = (),
    kept: tuple[Quarantine, ...] = (),
) -> tuple[tuple[Quarantine, ...], dt.datetime | None]:
    """Return the new entries, and when to look again if nothing changes until then.

    Args:
        node: the node of the GPUs.
        now: the API server's time.
        rules: settings of the decision.
        repaired: GPUs that were quarantined when an administrator deleted the previous GPUNode.
        kept: entries of GPUs whose GPUNode was deleted with its Node: they continue.
    """
    if node.status.mode == "observed":
        return (), None
    if kept:
        spec = structs.replace(node.spec, quarantine=_joined(node.spec.quarantine, kept))
        node = structs.replace(node, spec=spec)
    unhealthy = _unhealthy_devices(node.status.devices)
    devices = {each.mig_parent or each.uuid: each for each in node.status.devices}
    # A GPU without slices for now, as after a boot, exists all the same.
    there = devices.keys() | {each.gpu for each in node.status.mig_gpus}
    new = _new_gpus(node, rules, repaired)
    entries, again_at = list[Quarantine](), list[dt.datetime]()
    for entry in node.spec.quarantine:
        # Before its first scan an agent knows of no GPUs.
        if there and entry.gpu not in there:
            continue
        step = _Step(node, rules, now, devices.get(entry.gpu), unhealthy.pop(entry.gpu, None))
        found = step.next(entry)
        if found is None:
            continue
        entries.append(found)
        if (ends_at := step.ends_at(found)) is not None:
            again_at.append(ends_at)
    since = format_time(now)
    for gpu, device in unhealthy.items():
        entries.append(Quarantine(gpu=gpu, cause=device.cause, since=since))
    entries += [Quarantine(gpu=g, phase="Acceptance", cause=why, since=since) for g, why in new]
    return tuple(entries[:MAX_GPUS]), min(again_at, default=None)


def _joined(
    entries: tuple[Quarantine, ...], kept: tuple[Quarantine, ...]
) -> tuple[Quarantine, ...]:
    entered = {each.gpu for each in entries}
    return (*entries, *(each for each in kept if each.gpu not in entered))


NEW_GPU: Final = "it has not been measured yet"
REPAIRED_GPU: Final = "its GPUNode was deleted while it was quarantined"


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """Step from one phase of a GPU to the next.

    Attributes:
        device: the agent's description of the GPU; None: there is no scan yet.
        unhealthy: the GPU or a slice of it, if that is Cordoned or Failed.
    """

    node: GpuNode
    rules: Rules
    now: dt.datetime
    device: GpuDevice | None
    unhealthy: GpuDevice | None

    def next(self, entry: Quarantine) -> Quarantine | None:
        """Return the next entry; None: the GPU is used normally."""
        if self.unhealthy is not None:
            return (
                entry
                if entry.phase == "Quarantined"
                else self._relapsed(entry, self.unhealthy.cause)
            )
        if self.device is None or self.device.causes == NOT_INSPECTED:
            return entry
        match entry.phase:
            case "Quarantined":
                return self._better(entry)
            case "Acceptance":
                return self._tried(entry)
            case "Slow":
                return entry
        known = entry if entry.since else self._now_in(entry, "Probation")
        return known if self.rules.after(known, self.now) > self.now else None

    def ends_at(self, entry: Quarantine) -> dt.datetime | None:
        """Return when its phase ends by itself."""
        if self.device is None or self.device.causes == NOT_INSPECTED:
            return None
        if entry.phase == "Probation":
            return self.rules.after(entry, self.now)
        if entry.phase == "Acceptance" and entry.since and self.rules.acceptance:
            return times.after(times.read(entry.since), self.rules.acceptance.timeout_seconds)
        if entry.phase == "Quarantined" and entry.until and self.unhealthy is None:
            return times.read(entry.until)
        return None

    def _better(self, entry: Quarantine) -> Quarantine:
        if entry.until and times.read(entry.until) > self.now:
            return entry
        rules = self.rules.acceptance
        if rules is not None and self.device is not None and rules.tries(self.device):
            return self._now_in(entry, "Acceptance")
        return self._now_in(entry, "Probation")

    def _tried(self, entry: Quarantine) -> Quarantine | None:
        if self.rules.acceptance is None:
            return self._now_in(entry, "Probation")
        waits = acceptance.in_maintenance(self.node, entry.gpu)
        if waits or entry.since is None:
            # Its time begins when maintenance is over: nothing may run on it until then.
            return structs.replace(entry, since=None) if waits else self._now_in(entry, entry.phase)
        verdict = acceptance.verdict_of(self.node, entry)
        match verdict.outcome if verdict else None:
            case "Passed":
                return self._passed(entry, verdict)
            case "Failed":
                return self._failed(entry, verdict)
            case "Unknown":
                return self._now_in(entry, "Probation")
        return entry

    def _passed(self, entry: Quarantine, verdict: Measured | None) -> Quarantine | None:
        late = self.ends_at(entry)
        if late is not None and late > self.now and self._waits_for_others():
            return entry
        if verdict is None or self.device is None:
            return None
        slowness = self.rules.fleet.slowness(self.device.model, verdict)
        return self._now_in(entry, "Slow", cause=slowness) if slowness else None

    def _waits_for_others(self) -> bool:
        """Tell whether to wait for the node's other GPUs until all can run an all-reduce."""
        entries = {e.gpu: e for e in self.node.spec.quarantine if e.phase == "Acceptance"}
        whole = {each.uuid for each in self.node.status.devices if not each.mig_parent}
        if len(whole) < acceptance.MIN_ALL_REDUCE_GPUS or not whole <= entries.keys():
            return False
        verdicts = [acceptance.verdict_of(self.node, entry) for entry in entries.values()]
        if any(each is not None and each.outcome != "Passed" for each in verdicts):
            return False
        return not all(verdicts) or acceptance.all_reduce_gpus(self.node) > 0

    def _failed(self, entry: Quarantine, verdict: Measured | None) -> Quarantine:
        cause = f"its burn-in failed: {verdict.message if verdict else ''}"
        entry = self._relapsed(entry, cause[: acceptance.MAX_MESSAGE])
        return structs.replace(entry, until=format_time(self.rules.after(entry, self.now)))

    def _relapsed(self, entry: Quarantine, cause: str) -> Quarantine:
        relapses = min(entry.relapses + 1, MAX_RELAPSES)
        return structs.replace(self._now_in(entry, "Quarantined", cause), relapses=relapses)

    def _now_in(self, entry: Quarantine, phase: Phase, cause: str = "") -> Quarantine:
        since = format_time(self.now)
        return structs.replace(
            entry, phase=phase, since=since, until=None, cause=cause or entry.cause
        )


def _new_gpus(node: GpuNode, rules: Rules, repaired: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the GPUs without an entry that are tested before they get any work, and why."""
    tried = rules.acceptance
    if tried is None:
        return
    new = {each.uuid for each in tried.new(node)}
    entered = {each.gpu for each in node.spec.quarantine}
    for device in node.status.devices:
        uuid = device.uuid
        if device.health not in TAKES_WORK or uuid in entered or not tried.tries(device):
            continue
        if uuid in new or uuid in repaired:
            yield uuid, NEW_GPU if uuid in new else REPAIRED_GPU


def _unhealthy_devices(devices: tuple[GpuDevice, ...]) -> dict[str, GpuDevice]:
    """Return the unhealthy devices by GPU; a MIG slice counts for its GPU."""
    return {each.mig_parent or each.uuid: each for each in devices if _is_unhealthy(each)}


def _is_unhealthy(device: GpuDevice) -> bool:
    return device.health in UNHEALTHY and device.causes != NOT_INSPECTED
