# SPDX-License-Identifier: Apache-2.0
"""The observer of other device plugins of this node, and of the pods that hold their GPUs.

    kubelet: GetAllocatableResources ─► node_mode ─► registration, GPUNode
    kubelet: Get, for each pod with a request ─► holders ─► GPUNode

The holders are information for people. The ledger counts pods of observed nodes by their requests,
because the other plugin's choice of devices is known only afterwards.
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
    """The observer, which keeps the mode and the holders of an observed node up to date."""

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
        self._holders: dict[str, GpuHolder] | None = None
        self._kubelet_answered = True

    @property
    def foreign(self) -> ForeignDevices:
        """Return the GPUs of other vendors."""
        return self._foreign

    @property
    def holders(self) -> tuple[GpuHolder, ...] | None:
        """Return the pods that hold GPUs of an observed node; None before they were read."""
        if self._holders is None:
            return None
        return tuple(sorted(self._holders.values(), key=lambda pod: (pod.namespace, pod.name)))

    async def run(self) -> None:
        """Observe every ROUND_SECONDS, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Observe once. While the kubelet is unavailable the last known state stays."""
        try:
            if self._node_mode.observes:
                served = await self._kubelet.served()
                self._node_mode.update(served)
                observed = self._node_mode.resources if self._node_mode.mode == "observed" else ()
                self._foreign.update(served, observed)
            await self._read_holders()
        except (KubeletUnavailable, KubeletTooOld) as error:
            self._log_once(error)
        else:
            self._kubelet_answered = True

    async def _read_holders(self) -> None:
        """Read the devices of each pod once: a pod keeps its devices for life.

        Only pods that the API shows as started count. Their status comes from the kubelet, so the
        pod that it knows by this name (PodResources has no UIDs) is this pod and no predecessor.
        """
        if self._node_mode.mode == "owned" or not self._pods.synced:
            self._holders = None
            return
        resources = self._node_mode.resources
        pods = self._pods.started(resources)
        known = self._holders or {}
        read = {pod.uid: known[pod.uid] for pod in pods if pod.uid in known}
        for pod in pods:
            if pod.uid not in read:
                listed = await self._kubelet.tokens(pod.namespace, pod.name, *resources)
                if listed:
                    ids = frozenset[str]().union(*listed.values())
                    foreign_devices = {device.uuid: device for device in self._foreign.devices}
                    read[pod.uid] = describe_holder(
                        pod, ids, foreign_devices | self._known_devices.devices
                    )
        self._holders = read

    def _log_once(self, error: AgentError) -> None:
        """Log the error once, until the kubelet answers again."""
        if self._kubelet_answered:
            log.warning(
                "cannot read which plugin serves this node's GPUs, and which pods hold them: %s",
                error,
            )
        self._kubelet_answered = False


def describe_holder(pod: PodView, ids: Iterable[str], gpus: Mapping[str, GpuDevice]) -> GpuHolder:
    """Describe the devices of another plugin that a pod holds.

    NVIDIA's plugin names whole GPUs by their UUIDs. Other IDs (replicas of a time-sliced GPU) are
    left out: their size is not known.
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
