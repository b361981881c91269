# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that an administrator requests, applied once no pod holds the slices they replace.

    GPUNode.spec.migLayouts ─► judge ─► GPUNode.status.migGpus: changing ─► the extender assigns no
    slice of the GPU ─► SETTLED_SECONDS later no pod holds one ─► partition

A bind that was in progress when the extender read `changing` has SETTLED_SECONDS to appear in the
watch of pods. A later one names a slice that no longer exists: the agent refuses its container. The
driver itself destroys no slice that a process uses.
"""

import dataclasses
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from gpupack_agent import holders
from gpupack_agent.errors import InventoryUnavailable, LayoutInvalid
from gpupack_agent.holders import NodeView
from gpupack_agent.inventory.base import Findings, Inventory
from gpupack_agent.inventory.layout import MigGpu, Place, place_slices
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.prestart import NodeState
from gpupack_crds import mig
from gpupack_crds.gpunode import MAX_GPUS
from gpupack_crds.names import MIG_PROFILE

log = logging.getLogger(__name__)

SETTLED_SECONDS: Final = 5.0
"""The time for which GPUNode must announce a partitioning before the GPU is partitioned."""

RETRY_SECONDS: Final = 60.0
"""The time until the next attempt after the driver refused to partition a GPU."""

MESSAGE_CHARACTERS: Final = 256
"""The largest number of characters of a message that GPUNode accepts."""

NO_MIG_MODE = (
    "the GPU is not in MIG mode; enable it while no process uses the GPU: nvidia-smi -i {} -mig 1"
)
SIMULATED_WITHOUT_SLICES = "the GPU is simulated without MIG slices; add them in agent.simulated"
UNKNOWN_GPU = "this node has no such GPU"
OBSERVED_NODE = "another device plugin assigns this node's GPUs; change the layout with its tools"
CHANGES_DISABLED = "layouts do not change: the chart's agent.migLayouts is false"
PARTITIONED_SOON = "no pod holds its slices; it is partitioned in a few seconds"
PODS_UNKNOWN = "the pods of this node are not known yet"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """A GPU's status, and the places of its new slices if the GPU is to be partitioned."""

    entry: mig.MigGpu
    places: tuple[Place, ...] | None = None


def decide_layout(
    gpu: MigGpu, wanted: Sequence[str] | None, present: Iterable[str], held_by: Collection[str]
) -> Decision:
    """Decide whether a GPU in MIG mode is to be partitioned.

    Args:
        gpu: the GPU.
        wanted: a profile for each slice; None: the GPU stays as it is.
        present: the profiles of its slices.
        held_by: pods that hold any of its slices.
    """
    named = [name for name in gpu.profiles if re.fullmatch(MIG_PROFILE, name)]
    entry = mig.MigGpu(gpu=gpu.uuid, profiles=tuple(named[: mig.MAX_PROFILES]))
    if wanted is None or Counter(wanted) == Counter(present):
        return Decision(entry)
    try:
        places = place_slices(gpu.profiles, wanted)
    except LayoutInvalid as error:
        return Decision(_with_message(entry, str(error)))
    if held_by:
        text = f"waiting for {len(held_by)} pods that hold its slices: {', '.join(sorted(held_by))}"
        return Decision(_with_message(entry, text, changing=True))
    return Decision(_with_message(entry, PARTITIONED_SOON, changing=True), places)


def _with_message(gpu: mig.MigGpu, text: str, *, changing: bool = False) -> mig.MigGpu:
    return mig.MigGpu(
        gpu=gpu.gpu,
        profiles=gpu.profiles,
        changing=changing,
        message=text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 1] + "…",
    )


class Layouts:
    """The MIG layouts of one node's GPUs.

    Args:
        node: the state of GPUs and pods.
        node_mode: the device plugins that hand the GPUs out.
        allowed: whether GPUs may be partitioned again.
        now: monotonic seconds.
    """

    def __init__(
        self,
        node: NodeState,
        node_mode: NodeMode,
        *,
        allowed: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._node_mode, self._allowed, self._now = node, node_mode, allowed, now
        self._wanted: Mapping[str, tuple[str, ...]] = {}
        self._announced: dict[str, float] = {}
        """The time at which GPUNode announced the partitioning of each GPU, monotonic seconds."""
        self._refused: dict[str, tuple[float, str]] = {}
        """The time at which the driver refused to partition a GPU, and its reason."""

    @property
    def may_change(self) -> bool:
        """Tell whether there are GPUs that may be partitioned again."""
        return self._allowed and bool(self._node.known_devices.findings.mig_gpus)

    def request(self, layouts: Iterable[mig.MigLayout]) -> None:
        """Store the layouts of GPUNode's spec."""
        self._wanted = {each.gpu: each.profiles for each in layouts}

    def status(self) -> tuple[mig.MigGpu, ...]:
        """Return the MIG GPUs for GPUNode's status."""
        decisions = self._decisions()
        others = (uuid for uuid in self._wanted if uuid not in decisions)
        entry = [each.entry for each in decisions.values()]
        entry += [
            _with_message(mig.MigGpu(gpu=uuid), self._message_without_mig(uuid)) for uuid in others
        ]
        return tuple(sorted(entry, key=lambda each: each.gpu)[:MAX_GPUS])

    def record_announced(self, recorded: Iterable[mig.MigGpu]) -> None:
        """Record since when GPUNode announces the partitioning of each GPU."""
        now = self._now()
        changing = (each.gpu for each in recorded if each.changing)
        self._announced = {uuid: self._announced.get(uuid, now) for uuid in changing}

    async def round(self, inventory: Inventory) -> bool:
        """Partition the GPUs that are due; return whether there were any.

        After the driver refused a GPU it is tried again later. GPUNode shows the reason.
        """
        due = {
            uuid: decision.places
            for uuid, decision in self._decisions().items()
            if decision.places is not None and self._has_settled(uuid)
        }
        for uuid, places in due.items():
            wanted = ", ".join(place.profile for place in places) or "no slices"
            log.info("partitioning GPU %s into %s", uuid, wanted)
            try:
                await inventory.partition(uuid, places)
            except InventoryUnavailable as error:
                log.error("cannot partition GPU %s: %s", uuid, error)  # noqa: TRY400 - the text suffices
                self._refused[uuid] = self._now(), str(error)
            self._announced.pop(uuid, None)
        return bool(due)

    def _decisions(self) -> dict[str, Decision]:
        findings, view = self._node.known_devices.findings, self._node.observe()
        return {gpu.uuid: self._decide(gpu, findings, view) for gpu in findings.mig_gpus}

    def _decide(self, gpu: MigGpu, findings: Findings, view: NodeView) -> Decision:
        slices = {each.uuid: each for each in findings.devices if each.mig_parent == gpu.uuid}
        present = [each.mig_profile for each in slices.values()]
        decision = decide_layout(gpu, self._wanted.get(gpu.uuid), present, _holding(slices, view))
        if not decision.entry.changing:
            self._refused.pop(gpu.uuid, None)
            return decision
        if obstacle := self._obstacle(gpu.uuid):
            return Decision(_with_message(decision.entry, obstacle))
        if not self._node.pods.synced:
            return Decision(_with_message(decision.entry, PODS_UNKNOWN, changing=True))
        return decision

    def _obstacle(self, uuid: str) -> str:
        """Return why a GPU is not partitioned for now, its slices usable; empty: no reason."""
        if not self._allowed:
            return CHANGES_DISABLED
        if self._node_mode.mode == "observed":
            return OBSERVED_NODE
        at, refusal = self._refused.get(uuid, (float("-inf"), ""))
        return refusal if self._now() - at < RETRY_SECONDS else ""

    def _message_without_mig(self, uuid: str) -> str:
        """Return the message for a GPU that is not in MIG mode."""
        device = self._node.known_devices.devices.get(uuid)
        if device is None:
            return UNKNOWN_GPU
        return SIMULATED_WITHOUT_SLICES if device.simulated else NO_MIG_MODE.format(uuid)

    def _has_settled(self, uuid: str) -> bool:
        record_announced = self._announced.get(uuid)
        return record_announced is not None and self._now() - record_announced >= SETTLED_SECONDS


def _holding(slices: Collection[str], view: NodeView) -> set[str]:
    """Return the pods that hold these slices, or are bound to them and have not started."""
    held = {
        record.title
        for record in holders.live_records(view)
        if any(device.uuid in slices for device in record.devices)
    }
    return held | {
        pod.title
        for pod in view.pods.values()
        if not pod.finished and any(each.uuid in slices for each in holders.annotated_devices(pod))
    }
