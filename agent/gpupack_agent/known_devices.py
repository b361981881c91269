# SPDX-License-Identifier: Apache-2.0
"""All GPUs that this node has or had, with the errors that count against them.

A GPU that a scan no longer finds is not forgotten: pods may hold it, and the administrator must see
it. It stays, as Failed, until the GPUNode is deleted. Errors that the driver reported of a GPU stay
until the node boots or the GPUNode is deleted (`grading.rules` explains why). Both outlive the
agent for real GPUs, through GPUNode itself. Simulated GPUs are forgotten at a restart, because the
file describes them. A GPU that answers and is partitioned differently than before is not gone: its
former slices are forgotten at once. The driver does not partition a GPU that is in use, and a GPU
that is partitioned from time to time would leave more slices behind than GPUNode accepts.

A better grade is shown once it has lasted for a while (`grading.hysteresis`).

While no scan succeeds, the known GPUs stay, and GPUNode shows since when. After a while the GPUs
get no new work, because it is not known whether they work.
"""

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.grading import hysteresis, rules
from gpupack_agent.grading.grade import Grade, is_worse
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.outages import Outage
from gpupack_crds.gpunode import MAX_CAUSES, MAX_XIDS, GpuDevice, GpuNodeStatus
from gpupack_crds.times import format_time

GONE_CAUSE = (
    "the driver no longer lists this GPU; if it was removed from the host, delete this GPUNode"
)

GONE_RULE = "GpuMissing"
NOT_SEEN_RULE = "NotInspected"

CAUSE_CHARACTERS = 256
"""The largest number of characters of a cause that GPUNode accepts."""

STALE_SECONDS = 30.0
"""The time without a scan after which GPUs get no new work: three scans, so that one failed scan
changes nothing."""


def merge(
    known: Iterable[GpuDevice], seen: Iterable[GpuDevice], answered: Collection[str] = ()
) -> tuple[GpuDevice, ...]:
    """Merge the known devices with those that a scan found, in order of index.

    Args:
        known: the devices that were known before.
        seen: the devices that the scan found.
        answered: UUIDs of GPUs that answered, partitioned or not.
    """
    seen = tuple(seen)
    present = {*answered, *map(_gpu, seen)}
    merged = {each.uuid: _as_gone(each) for each in known if _gpu(each) not in present}
    merged |= {device.uuid: device for device in seen}
    return tuple(sorted(merged.values(), key=lambda device: (device.index, device.uuid)))


def real_devices(recorded: Iterable[GpuDevice]) -> tuple[GpuDevice, ...]:
    """Return the devices that a new agent restores from GPUNode: all real ones."""
    return tuple(device for device in recorded if not device.simulated)


def with_since(
    known: Mapping[str, GpuDevice], seen: Iterable[GpuDevice], *, now: dt.datetime
) -> tuple[GpuDevice, ...]:
    """Set the time since when each GPU has its present health and cause; none if Healthy."""
    return tuple(_with_since(device, known.get(device.uuid), now) for device in seen)


def cordon_unseen(
    devices: Iterable[GpuDevice], since: dt.datetime, *, now: dt.datetime, reason: str
) -> tuple[GpuDevice, ...]:
    """Return the GPUs that no scan has reached since a time.

    After STALE_SECONDS those that were Healthy or Degraded become `Cordoned`, with the
    reason.
    """
    if (now - since).total_seconds() < STALE_SECONDS:
        return tuple(devices)
    cause = f"no successful scan since {format_time(since)}: {reason}"[:CAUSE_CHARACTERS]
    return tuple(
        msgspec.structs.replace(device, health="Cordoned", cause=cause, causes=(NOT_SEEN_RULE,))
        if not is_worse(device.health, "Degraded")
        else device
        for device in devices
    )


def _as_gone(device: GpuDevice) -> GpuDevice:
    return msgspec.structs.replace(device, health="Failed", cause=GONE_CAUSE, causes=(GONE_RULE,))


def _with_grade(device: GpuDevice, grade: Grade) -> GpuDevice:
    """Return the device with a grade in addition to its own; the worse of the two counts."""
    causes = (*device.causes, *grade.causes)
    if is_worse(grade.health, device.health):
        causes = (*grade.causes, *device.causes)
        device = msgspec.structs.replace(device, health=grade.health, cause=grade.cause)
    return msgspec.structs.replace(
        device, xids=grade.xids[:MAX_XIDS], causes=tuple(dict.fromkeys(causes))[:MAX_CAUSES]
    )


def _xids_of(devices: Iterable[GpuDevice]) -> dict[str, frozenset[int]]:
    """Return XIDs by GPU, including those of its slices: they outlive its partitioning."""
    found: dict[str, frozenset[int]] = {}
    for device in devices:
        found[_gpu(device)] = found.get(_gpu(device), frozenset()).union(device.xids)
    return found


def _gpu(device: GpuDevice) -> str:
    return device.mig_parent or device.uuid


def _with_since(device: GpuDevice, before: GpuDevice | None, now: dt.datetime) -> GpuDevice:
    since: str | None = None
    if device.health != "Healthy":
        same = before and (before.health, before.cause) == (device.health, device.cause)
        since = before.since if before and same else format_time(now)
    return msgspec.structs.replace(device, since=since)


class KnownDevices:
    """The node's GPUs at this moment, with an event for each change.

    Args:
        boot_id: identifies this boot of the node; errors reported in another one do not count.
        hold_seconds: the time for which a GPU must be better before its grade improves.
        on_forget: called when the errors reported in this boot no longer count either.
    """

    def __init__(
        self,
        *,
        boot_id: str = "",
        hold_seconds: float = 0.0,
        on_forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.boot_id = boot_id
        self._hold_seconds = hold_seconds
        self._last_graded: dict[str, GpuDevice] = {}
        """The devices after the last successful scan, or as the previous agent recorded them."""
        self._worst_states: dict[str, GpuDevice] = {}
        """The worst state since a GPU became better than its shown grade, by UUID."""
        self.findings = Findings(devices=())
        self.busy: Mapping[str, bool] = {}
        """Whether anything ran on each GPU, from the last scan; empty if that failed."""
        self._on_forget = on_forget
        self._xids: dict[str, frozenset[int]] = {}
        """The XIDs that count against each GPU, by UUID."""
        self.outage: Outage | None = None
        self._changed = asyncio.Event()

    @property
    def devices(self) -> dict[str, GpuDevice]:
        """Return the GPUs by UUID."""
        return {device.uuid: device for device in self.findings.devices}

    def update(self, found: Findings) -> None:
        """Apply a successful scan."""
        self.busy, self.outage = found.busy, None
        self._set(found, known=self.devices)

    def scan_failed(self, error: InventoryUnavailable) -> None:
        """Apply a failed scan."""
        now = dt.datetime.now(dt.UTC)
        self.busy, since = {}, self.outage.since if self.outage else now
        self.outage = Outage(error.reason, str(error), since)
        known = cordon_unseen(self.findings.devices, since, now=now, reason=str(error))
        devices = with_since(self.devices, known, now=now)
        is_old = (now - since).total_seconds() >= STALE_SECONDS
        self._publish(
            dataclasses.replace(
                self.findings,
                devices=devices,
                stale_since=format_time(since),
                facts=() if is_old else self.findings.facts,
            )
        )

    def seconds_without_scan(self) -> float:
        """Return the seconds for which no scan has succeeded; 0 if the last one did."""
        if self.outage is None:
            return 0.0
        return (dt.datetime.now(dt.UTC) - self.outage.since).total_seconds()

    def restore(self, recorded: GpuNodeStatus) -> None:
        """Restore what GPUNode recorded before this agent started."""
        known = {device.uuid: device for device in real_devices(recorded.devices)}
        self._last_graded = {
            uuid: device for uuid, device in known.items() if NOT_SEEN_RULE not in device.causes
        }
        if "" in {recorded.boot_id, self.boot_id} or recorded.boot_id == self.boot_id:
            self._xids = _xids_of(known.values())
        if self.outage is None:
            self._set(self.findings, known=known)
        else:
            devices = tuple(known.values())
            self._publish(dataclasses.replace(self.findings, devices=devices))

    def forget(self) -> None:
        """Keep only the GPUs that the last scan found, and drop their past errors."""
        self._xids, self._last_graded, self._worst_states = {}, {}, {}
        self._on_forget()
        found = tuple(device for device in self.findings.devices if device.cause != GONE_CAUSE)
        self._publish(dataclasses.replace(self.findings, devices=found, xids={}))

    @property
    def next_change(self) -> asyncio.Event:
        """Return the event that the next change sets; take it before reading `findings`."""
        return self._changed

    def _set(self, found: Findings, *, known: Mapping[str, GpuDevice]) -> None:
        facts = {each.uuid: each for each in found.facts}
        graded = [
            _with_grade(device, self._grade(_gpu(device), found, facts)) for device in found.devices
        ]
        now = dt.datetime.now(dt.UTC)
        shown = [self._apply_hysteresis(device, now) for device in graded]
        devices = with_since(known, merge(known.values(), shown, facts), now=now)
        self._last_graded = {device.uuid: device for device in devices}
        self._publish(dataclasses.replace(found, devices=devices))

    def _grade(self, gpu: str, found: Findings, facts: Mapping[str, GpuFacts]) -> Grade:
        """Grade a GPU by its facts, its XIDs of this scan, and those that were reported earlier.

        A restarted process that queries the driver knows no errors from before its start.
        """
        reported = self._xids.get(gpu, frozenset()).union(found.xids.get(gpu, ()))
        grade = rules.grade_gpu(facts.get(gpu), reported)
        self._xids[gpu] = frozenset(grade.xids)
        return grade

    def _apply_hysteresis(self, seen: GpuDevice, now: dt.datetime) -> GpuDevice:
        worst = self._worst_states.pop(seen.uuid, seen)
        worst = worst if is_worse(worst.health, seen.health) else seen
        shown = hysteresis.apply_hysteresis(
            seen,
            self._last_graded.get(seen.uuid),
            worst=worst,
            now=now,
            hold_seconds=self._hold_seconds,
        )
        if shown.recovering_since is not None:
            self._worst_states[seen.uuid] = worst if is_worse(shown.health, worst.health) else seen
        return shown

    def _publish(self, findings: Findings) -> None:
        """Replace the findings; set the event of a change, unless only figures differ."""
        is_same, self.findings = findings == self.findings, findings
        if is_same:
            return
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
