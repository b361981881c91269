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
from gpupack_agent.inventory.layout import MigGpu, Place, plan
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.prestart import NodeState
from gpupack_crds import mig
from gpupack_crds.gpunode import MAX_GPUS
from gpupack_crds.names import MIG_PROFILE

log = logging.getLogger(__name__)

SETTLED_SECONDS: Final = 5.0
"""The time for which GPUNode must announce a partitioning before the GPU is partitioned."""

AGAIN_SECONDS: Final = 60.0
"""The time until the next attempt after the driver refused to partition a GPU."""

MESSAGE_CHARACTERS: Final = 256
"""The largest number of characters of a message that GPUNode accepts."""

MODE = "it is not in MIG mode; turn that on where nothing uses it: nvidia-smi -i {} -mig 1"
SIMULATED = "it is simulated, and no slices of it are: see agent.simulated"
UNKNOWN = "this node has no such GPU"
NOT_OURS = "another device plugin hands out this node's GPUs; cut them by its means"
FORBIDDEN = "the chart's agent.migLayouts is false, so layouts stay as they are"
SETTLES = "nobody holds its slices; it is cut in some seconds"
WATCHES = "the pods of this node are not known yet"


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A GPU's status, and the places of its new slices if the GPU is to be partitioned."""

    said: mig.MigGpu
    places: tuple[Place, ...] | None = None


def judge(
    gpu: MigGpu, wanted: Sequence[str] | None, present: Iterable[str], held_by: Collection[str]
) -> Judged:
    """Decide whether a GPU in MIG mode is to be partitioned.

    Args:
        gpu: the GPU.
        wanted: a profile for each slice; None: the GPU stays as it is.
        present: the profiles of its slices.
        held_by: pods that hold any of its slices.
    """
    named = [name for name in gpu.profiles if re.fullmatch(MIG_PROFILE, name)]
    said = mig.MigGpu(gpu=gpu.uuid, profiles=tuple(named[: mig.MAX_PROFILES]))
    if wanted is None or Counter(wanted) == Counter(present):
        return Judged(said)
    try:
        places = plan(gpu.profiles, wanted)
    except LayoutInvalid as error:
        return Judged(_saying(said, str(error)))
    if held_by:
        text = f"{len(held_by)} pods hold its slices: {', '.join(sorted(held_by))}"
        return Judged(_saying(said, text, changing=True))
    return Judged(_saying(said, SETTLES, changing=True), places)


def _saying(gpu: mig.MigGpu, text: str, *, changing: bool = False) -> mig.MigGpu:
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
    def are_watched(self) -> bool:
        """Tell whether there are GPUs that may be partitioned again."""
        return self._allowed and bool(self._node.known_devices.findings.mig_gpus)

    def want(self, layouts: Iterable[mig.MigLayout]) -> None:
        """Store the layouts of GPUNode's spec."""
        self._wanted = {each.gpu: each.profiles for each in layouts}

    def status(self) -> tuple[mig.MigGpu, ...]:
        """Return the MIG GPUs for GPUNode's status."""
        judged = self._judged()
        strangers = (uuid for uuid in self._wanted if uuid not in judged)
        said = [each.said for each in judged.values()]
        said += [_saying(mig.MigGpu(gpu=uuid), self._stranger(uuid)) for uuid in strangers]
        return tuple(sorted(said, key=lambda each: each.gpu)[:MAX_GPUS])

    def announced(self, stands: Iterable[mig.MigGpu]) -> None:
        """Record since when GPUNode announces the partitioning of each GPU."""
        now = self._now()
        changing = (each.gpu for each in stands if each.changing)
        self._announced = {uuid: self._announced.get(uuid, now) for uuid in changing}

    async def round(self, inventory: Inventory) -> bool:
        """Partition the GPUs that are due; return whether there were any.

        After the driver refused a GPU it is tried again later. GPUNode shows the reason.
        """
        due = {
            uuid: judged.places
            for uuid, judged in self._judged().items()
            if judged.places is not None and self._has_settled(uuid)
        }
        for uuid, places in due.items():
            wanted = ", ".join(place.profile for place in places) or "no slices"
            log.info("GPU %s is cut into %s", uuid, wanted)
            try:
                await inventory.cut(uuid, places)
            except InventoryUnavailable as error:
                log.error("GPU %s is not cut: %s", uuid, error)  # noqa: TRY400 - the text suffices
                self._refused[uuid] = self._now(), str(error)
            self._announced.pop(uuid, None)
        return bool(due)

    def _judged(self) -> dict[str, Judged]:
        findings, view = self._node.known_devices.findings, self._node.observe()
        return {gpu.uuid: self._judge(gpu, findings, view) for gpu in findings.mig_gpus}

    def _judge(self, gpu: MigGpu, findings: Findings, view: NodeView) -> Judged:
        slices = {each.uuid: each for each in findings.devices if each.mig_parent == gpu.uuid}
        present = [each.mig_profile for each in slices.values()]
        judged = judge(gpu, self._wanted.get(gpu.uuid), present, _holding(slices, view))
        if not judged.said.changing:
            self._refused.pop(gpu.uuid, None)
            return judged
        if obstacle := self._obstacle(gpu.uuid):
            return Judged(_saying(judged.said, obstacle))
        if not self._node.pods.synced:
            return Judged(_saying(judged.said, WATCHES, changing=True))
        return judged

    def _obstacle(self, uuid: str) -> str:
        """Return why a GPU is not partitioned for now, its slices usable; empty: no reason."""
        if not self._allowed:
            return FORBIDDEN
        if self._node_mode.mode == "observed":
            return NOT_OURS
        at, refusal = self._refused.get(uuid, (float("-inf"), ""))
        return refusal if self._now() - at < AGAIN_SECONDS else ""

    def _stranger(self, uuid: str) -> str:
        """Return the message for a GPU that is not in MIG mode."""
        device = self._node.known_devices.devices.get(uuid)
        if device is None:
            return UNKNOWN
        return SIMULATED if device.simulated else MODE.format(uuid)

    def _has_settled(self, uuid: str) -> bool:
        announced = self._announced.get(uuid)
        return announced is not None and self._now() - announced >= SETTLED_SECONDS


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
        if not pod.finished and any(each.uuid in slices for each in holders.annotated(pod))
    }
