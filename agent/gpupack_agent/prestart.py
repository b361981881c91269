# SPDX-License-Identifier: Apache-2.0
"""The steps just before a container with devices is created.

    find the container by its device tokens ─► admit: may it have its part of the pod's annotation?
        ─► confirm with kubelet and API server that it still is that container of that pod
        ─► admit again and write the CDI spec

The call waits for obstacles that can disappear: a watch that lags, a predecessor that terminates.
The kubelet's own retries come too late for that. The kubelet gives up a call after 30 s while the
handler would continue, so nothing is written for a call that is no longer active.

There is no lock. The written spec makes a pod a holder. There is no await between the last
admission and the write of the spec, and the event loop has one thread: of two calls for one device
the second sees the first one's record. So the write blocks the loop, for a kilobyte.
"""

import asyncio
import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Final

from gpupack_agent.admission import Wait, admit
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.errors import (
    AgentError,
    CallAbandoned,
    ContainerUnidentified,
    InventoryUnavailable,
    KubeletUnavailable,
    StartRefused,
)
from gpupack_agent.gang_memory import GangMemory
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.identity import ContainerFinder
from gpupack_agent.inventory.base import Injection, Inventory
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.injection import is_limited, with_limits
from gpupack_agent.mps.threads import NO_THREAD_PERCENTAGES, ThreadPercentages
from gpupack_agent.pods import PodStore
from gpupack_agent.settings import PreStartSettings

log = logging.getLogger(__name__)

OUTCOMES: Final = ("prepared", "held", "refused", "failed", "abandoned")
"""Outcomes of a container start, as labels of a metric.

held: refused because another pod still holds the device; failed: kubelet, API server or disk.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """The stores of the state on which an admission depends."""

    pods: PodStore
    specs: SpecFolder
    cgroups: Cgroups
    known_devices: KnownDevices
    gang_memory: GangMemory = dataclasses.field(default_factory=GangMemory)

    def observe(self) -> NodeView:
        """Return a view of the state at this moment, which reads each cgroup at most once."""
        return NodeView(
            records=self.specs.records,
            pods=dict(self.pods.by_uid),
            cgroup=functools.cache(self.cgroups.state),
            devices=self.known_devices.devices,
            now=time.monotonic(),
        )


class PreStart:
    """The preparation of container starts.

    Attributes:
        outcomes: number of starts by outcome, one of `OUTCOMES`.
    """

    def __init__(
        self,
        node: NodeState,
        container_finder: ContainerFinder,
        inventory: Inventory,
        settings: PreStartSettings,
        mps: MpsFolder | None = None,
        *,
        thread_percentages: ThreadPercentages = NO_THREAD_PERCENTAGES,
    ) -> None:
        self._node = node
        self._mps = mps
        self._thread_percentages = thread_percentages
        self._container_finder = container_finder
        self._inventory = inventory
        self._settings = settings
        self.outcomes: collections.Counter[str] = collections.Counter()

    async def prepare(
        self, resource: str, tokens: frozenset[str], *, active: Callable[[], bool]
    ) -> Record:
        """Give the container that holds these device tokens its devices.

        Args:
            resource: the resource of the device tokens.
            tokens: the IDs of the device tokens that the kubelet handed out.
            active: tells whether the kubelet still waits for the answer.

        Raises:
            StartRefused: there is an obstacle, which the text names.
            CdiUnwritable: the CDI spec could not be written; the container got no device.
            KubeletTooOld: the kubelet lacks a call that the agent needs.
            CallAbandoned: the kubelet no longer waits.
        """
        began = time.monotonic()
        try:
            record = await self._prepare_within_limit(resource, tokens, active)
        except AgentError as error:
            self.outcomes[_outcome_of(error)] += 1
            raise
        self.outcomes["prepared"] += 1
        _log_start(record, seconds=time.monotonic() - began)
        return record

    async def _prepare_within_limit(
        self, resource: str, tokens: frozenset[str], active: Callable[[], bool]
    ) -> Record:
        wait = Wait("the kubelet or the API server does not answer")
        try:
            async with asyncio.timeout(self._settings.wait_seconds):
                while isinstance(
                    outcome := await self._try_prepare(resource, tokens, active), Wait
                ):
                    wait = outcome
                    await asyncio.sleep(self._settings.poll_seconds)
        except TimeoutError:
            waited = f"waited {self._settings.wait_seconds:.0f} s"
            raise StartRefused(
                f"{wait.reason} ({waited})", pods=wait.pods, is_held=wait.is_held
            ) from None
        return outcome

    async def _try_prepare(
        self, resource: str, tokens: frozenset[str], active: Callable[[], bool]
    ) -> Record | Wait:
        try:
            return await self._prepare_once(resource, tokens, active)
        except (ContainerUnidentified, KubeletUnavailable, InventoryUnavailable) as error:
            return Wait(str(error), error.pods)

    async def _prepare_once(
        self, resource: str, tokens: frozenset[str], active: Callable[[], bool]
    ) -> Record | Wait:
        start = await self._container_finder.find(resource, tokens)
        try:
            first = admit(start, self._node.observe())
        except StartRefused:
            # The refusal describes a pod, so only that pod's own call may get it.
            await self._container_finder.confirm(start)
            raise
        if isinstance(first, Wait):
            return first
        if wait := self._request_limits(first):
            return wait
        uuids = [device.uuid for device in (*first.devices, *first.peers)]
        injection = await asyncio.to_thread(self._inventory.injection, uuids)
        current = await self._container_finder.confirm(start)

        node = self._node.observe()
        decision = admit(current, node)
        if isinstance(decision, Wait):
            return decision
        if decision != first:
            return Wait("the pod changed while its devices were checked", (first.title,))
        if not active():
            raise CallAbandoned(f"the kubelet gave up starting pod {first.title}")
        simulated = any(node.devices[uuid].simulated for uuid in uuids)
        if self._mps and is_limited(decision.devices[0]) and not simulated:
            (share,) = decision.devices
            model = node.devices[share.uuid].model
            threads = self._thread_percentages.up_to(share.percent, model)
            injection = with_limits(injection, share, self._mps, threads)
        if decision.peers and not simulated:
            injection = with_visible_devices(injection, decision)
        injection = self._node.gang_memory.with_shared_memory(injection, decision)
        self._node.specs.write(decision, injection, simulated=simulated)
        return decision

    def _request_limits(self, record: Record) -> Wait | None:
        """Request the MPS daemon of a limited share; return a Wait until it is ready.

        Simulated shares are not limited.
        """
        share, devices = record.devices[0], self._node.known_devices.devices
        if not is_limited(share) or (share.uuid in devices and devices[share.uuid].simulated):
            return None
        if self._mps is None or not self._mps.is_served():
            return Wait("this node has no limited shares now: its MPS supervisor does not run")
        try:
            self._mps.request(share.uuid)
        except OSError as error:
            return Wait(f"cannot request an MPS daemon: {error}")
        if self._mps.is_ready(share.uuid):
            return None
        return Wait("the MPS daemon of the GPU is starting")


def with_visible_devices(injection: Injection, record: Record) -> Injection:
    """Add the variable with the GPUs that CUDA shows: the container's own of those it can open."""
    own = ",".join(device.uuid for device in record.devices)
    variables = {**injection.environment, "CUDA_VISIBLE_DEVICES": own}
    return dataclasses.replace(injection, environment=variables)


def _outcome_of(error: AgentError) -> str:
    match error:
        case CallAbandoned():
            return "abandoned"
        case StartRefused():
            return "held" if error.is_held else "refused"
    return "failed"


def _log_start(record: Record, *, seconds: float) -> None:
    uuids = ", ".join(device.uuid for device in record.devices)
    log.info(
        "container %s of pod %s (%s) starts with %s, after %.0f ms",
        record.container,
        record.title,
        record.uid,
        uuids,
        seconds * 1000,
    )
