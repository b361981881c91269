# SPDX-License-Identifier: Apache-2.0
"""The agent, put together.

Order of start: the inventory, without which there is nothing to say; whether another device plugin
serves the node's GPUs; the GPUNode; the plugins. The GPUNode may be late: with the API server away
the plugins register all the same after a few seconds, since a kubelet that restarts without its
plugins rejects pods that wait for a container to restart.

Everything runs in one task group. A part that ends, ends the agent: its DaemonSet starts a new one,
and running pods do not notice.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping

import pynvml

from gpupack_agent import heartbeat, watchdog
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.desk import Desk
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.gpunode import GpuNodeWriter
from gpupack_agent.housekeeping import Household
from gpupack_agent.identity import Identities
from gpupack_agent.inventory.base import Inventory
from gpupack_agent.inventory.nvml import NvmlInventory, open_nvml
from gpupack_agent.inventory.simulated import SimulatedInventory
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_agent.observer import Observer
from gpupack_agent.plugin import Plugin
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import Node, PreStart
from gpupack_agent.registration import Registration
from gpupack_agent.report import Report
from gpupack_agent.roster import Roster
from gpupack_agent.settings import (
    HostSettings,
    InventorySettings,
    NodeSettings,
    ObservedSettings,
    PreStartSettings,
)
from gpupack_agent.tenure import Tenure
from gpupack_crds import names
from gpupack_kube.client import Api
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import PODS

log = logging.getLogger(__name__)

GPUNODE_SECONDS = 5.0
"""How long the plugins wait for the first GPUNode write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the agent."""

    node: NodeSettings
    inventory: InventorySettings
    observed: ObservedSettings
    host: HostSettings
    prestart: PreStartSettings
    holder: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings; raises SettingsInvalid."""
        node = NodeSettings.from_environ(environ)
        return cls(
            node=node,
            inventory=InventorySettings.from_environ(environ),
            observed=ObservedSettings.from_environ(environ),
            host=HostSettings.from_environ(environ),
            prestart=PreStartSettings.from_environ(environ),
            holder=environ.get("POD_NAME", node.name),
        )


def open_inventory(settings: Settings) -> Inventory:
    """Choose the backend; raises InventoryUnavailable."""
    chosen = settings.inventory
    if chosen.backend == "simulated":
        return SimulatedInventory(
            chosen.simulated_file, node=settings.node.name, scan_seconds=chosen.scan_seconds
        )
    open_nvml(pynvml, host_root=chosen.host_root)
    xids = XidWatcher(pynvml, scan_seconds=chosen.scan_seconds)
    return NvmlInventory(pynvml, xids, host_root=chosen.host_root)


async def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Run until cancelled or until a part fails.

    Raises:
        InventoryUnavailable: at start; later failures to scan are logged.
        ExceptionGroup: a part failed.
    """
    inventory = open_inventory(settings)
    roster = Roster()
    roster.update(await asyncio.to_thread(inventory.scan))
    log.info("node %s has %d GPUs", settings.node.name, len(roster.devices))
    async with (
        Api.connect(environ) as api,
        PodResources.connect(settings.host.pod_resources_socket) as kubelet,
    ):
        await _serve(settings, api, kubelet, inventory, roster)


async def _serve(
    settings: Settings, api: Api, kubelet: PodResources, inventory: Inventory, roster: Roster
) -> None:
    node = Node(
        pods=PodStore(settings.observed.resources),
        specs=SpecFolder(settings.host.cdi),
        cgroups=Cgroups(settings.host.cgroup),
        roster=roster,
    )
    node.specs.load()
    identities = Identities(node.pods, kubelet, api)
    prestart = PreStart(node, identities, inventory, settings.prestart)
    tenure = Tenure(settings.observed.resources)
    observer = Observer(tenure, node.pods, kubelet, roster)
    desks = _desks(prestart, settings.host, tenure)
    household = Household(node, identities, desks, tenure, settings.host.probe)
    watch = Reflector(
        api, PODS, node.pods, selectors={"fieldSelector": f"spec.nodeName={settings.node.name}"}
    )
    writer = GpuNodeWriter(api, Report(node, tenure, observer), node=settings.node.name)
    await observer.round()
    async with asyncio.TaskGroup() as parts:
        parts.create_task(watchdog.watch(), name="watchdog")
        parts.create_task(watch.run(), name="pods")
        parts.create_task(_scan_forever(inventory, roster), name="inventory")
        parts.create_task(
            heartbeat.beat_forever(api, settings.node, holder=settings.holder), name="heartbeat"
        )
        parts.create_task(observer.run(), name="observer")
        parts.create_task(writer.run(), name="gpunode")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GPUNODE_SECONDS):
                await writer.written.wait()
        # Once before the plugins register: a kubelet that hears of no tickets rejects pods.
        household.round()
        parts.create_task(household.run(), name="household")
        for desk in desks:
            parts.create_task(desk.registration.run(), name=desk.plugin.resource)


def _desks(prestart: PreStart, host: HostSettings, tenure: Tenure) -> tuple[Desk, ...]:
    return tuple(
        Desk(
            plugin := Plugin(resource, prestart.prepare),
            Registration(plugin, host.device_plugins, tenure.may_register),
            prefix=prefix,
            per_gpu=per_gpu,
        )
        for resource, prefix, per_gpu in (
            (names.GPU, "gpu", 1),
            (names.GPU_SHARE, "share", names.SHARE_SLOTS_PER_GPU),
        )
    )


async def _scan_forever(inventory: Inventory, roster: Roster) -> None:
    """Look again whenever something may have changed; keep what is known where that fails."""
    while True:
        await inventory.changed()
        try:
            roster.update(await asyncio.to_thread(inventory.scan))
        except InventoryUnavailable as error:
            log.error("%s; the GPUs known before stay", error)  # noqa: TRY400 - the text says it all
