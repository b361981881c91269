# SPDX-License-Identifier: Apache-2.0
"""Looks for other device plugins of this node, and at who holds GPUs of theirs.

    kubelet: GetAllocatableResources ─► node_mode ─► registration, GPUNode
    kubelet: Get, for each pod that asks ─► holders ─► GPUNode

What is read back is for people: the ledger counts pods of observed nodes by their requests, since
which device the other plugin chose is known only after it did.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from gpupack_agent.errors import AgentError, KubeletTooOld, KubeletUnavailable
from gpupack_agent.foreign import ForeignDevices
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore, PodView
from gpupack_crds.devices import WHOLE_PERCENT, DeviceShare
from gpupack_crds.gpunode import GpuDevice, GpuHolder

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


class Observer:
    """Keeps the mode and the holders of an observed node up to date."""

    def __init__(
        self,
        node_mode: NodeMode,
        pods: PodStore,
        kubelet: PodResources,
        known_devices: KnownDevices,
        foreign: ForeignDevices | None = None,
    ) -> None:
        self._foreign = foreign or ForeignDevices.none()
        self._node_mode = node_mode
        self._pods = pods
        self._kubelet = kubelet
        self._known_devices = known_devices
        self._read: dict[str, GpuHolder] | None = None
        self._answered = True

    @property
    def foreign(self) -> ForeignDevices:
        """The GPUs of other vendors."""
        return self._foreign

    @property
    def holders(self) -> tuple[GpuHolder, ...] | None:
        """Pods that hold GPUs of an observed node; None before they were read."""
        if self._read is None:
            return None
        return tuple(sorted(self._read.values(), key=lambda pod: (pod.namespace, pod.name)))

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Look once. What a kubelet that is away does not tell stays as it was."""
        try:
            if self._node_mode.observes:
                served = await self._kubelet.served()
                self._node_mode.see(served)
                observed = self._node_mode.resources if self._node_mode.mode == "observed" else ()
                self._foreign.see(served, observed)
            await self._read_back()
        except (KubeletUnavailable, KubeletTooOld) as error:
            self._complain(error)
        else:
            self._answered = True

    async def _read_back(self) -> None:
        """Ask for each pod once: it keeps its devices for life.

        Pods count that the API shows as started. Their status comes from the kubelet, so that the
        pod that it knows by this name (PodResources has no UIDs) is this one and no predecessor.
        """
        if self._node_mode.mode == "owned" or not self._pods.synced:
            self._read = None
            return
        resources = self._node_mode.resources
        pods = self._pods.started(resources)
        known = self._read or {}
        read = {pod.uid: known[pod.uid] for pod in pods if pod.uid in known}
        for pod in pods:
            if pod.uid not in read:
                listed = await self._kubelet.tickets(pod.namespace, pod.name, *resources)
                if listed:
                    ids = frozenset[str]().union(*listed.values())
                    theirs = {device.uuid: device for device in self._foreign.devices}
                    read[pod.uid] = holder(pod, ids, theirs | self._known_devices.devices)
        self._read = read

    def _complain(self, error: AgentError) -> None:
        """Once, until it answers again."""
        if self._answered:
            log.warning("cannot tell who hands out this node's GPUs, and to whom: %s", error)
        self._answered = False


def holder(pod: PodView, ids: Iterable[str], gpus: Mapping[str, GpuDevice]) -> GpuHolder:
    """Describe what a pod holds of another plugin's devices.

    NVIDIA's plugin names whole GPUs by their UUIDs. Ids that are none (replicas of a time-sliced
    GPU) are left out: nothing that is true could be said of their size.
    """
    return GpuHolder(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        devices=tuple(
            DeviceShare(uuid=each, percent=WHOLE_PERCENT, memory_mib=gpus[each].memory_mib)
            for each in sorted(ids)
            if each in gpus
        ),
    )
