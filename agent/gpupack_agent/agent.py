# SPDX-License-Identifier: Apache-2.0
"""The agent, assembled from its parts.

The order of the start is: the inventory; the check for another device plugin that serves the node's
GPUs; the GPUNode; the plugins. If the inventory cannot be read, the agent continues: the GPUs that
GPUNode records stay, and the driver is tried again, because a driver container may take minutes.
The GPUNode may be late: if the API server is unavailable, the plugins register after a few seconds
without it, because a kubelet that restarts without its plugins rejects pods with a container to
restart.

Everything runs in one task group. If a part fails, the agent ends: the kubelet starts it again, and
running pods are not affected.
"""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import AsyncIterator, Iterable, Mapping

from prometheus_client.registry import Collector

from gpupack_agent import watchdog
from gpupack_agent.agent_metrics import AgentMetrics
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.dcgm.address import ExporterPods
from gpupack_agent.dcgm.exporter import Exporter
from gpupack_agent.device_plugin import DevicePlugin, DevicePlugins
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.foreign import ForeignDevices, VendorLibrary
from gpupack_agent.gang_memory import GangMemory
from gpupack_agent.gpu_metrics import GpuMetrics
from gpupack_agent.gpunode import GpuNodeWriter
from gpupack_agent.holders import Record
from gpupack_agent.host_files import Root
from gpupack_agent.housekeeping import Housekeeping
from gpupack_agent.identity import ContainerFinder
from gpupack_agent.idleness import Idleness
from gpupack_agent.inventory import amd_prober
from gpupack_agent.inventory.base import Inventory
from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_process import DriverProcess
from gpupack_agent.inventory.simulated import SimulatedInventory
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.kubelet_config import KubeletConfig, read_kubelet, resolve_on_host
from gpupack_agent.layouts import Layouts
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.guard import Guard, WriteEvent
from gpupack_agent.mps.process_reader import ProcessReader, command
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.node_pod import NODE_PODS
from gpupack_agent.observer import Observer
from gpupack_agent.plugin_servicer import PluginServicer
from gpupack_agent.pod_use import PodUse
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import NodeState, PreStart
from gpupack_agent.registration import Registration
from gpupack_agent.report import Report
from gpupack_agent.settings import (
    DcgmSettings,
    HostSettings,
    InventorySettings,
    LimitSettings,
    NodeSettings,
    ObservedSettings,
    PreStartSettings,
)
from gpupack_crds import names
from gpupack_httpserver.settings import MetricsSettings
from gpupack_kubeclient import heartbeat
from gpupack_kubeclient.both import Both
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import Environment
from gpupack_kubeclient.events import About, EventWriter, Reporter, Said
from gpupack_kubeclient.metrics import UnreadableObjects
from gpupack_kubeclient.objects import ObjectMeta
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import NODES

log = logging.getLogger(__name__)

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")

GPUNODE_SECONDS = 5.0
"""The time for which the plugins wait for the first write of the GPUNode."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the agent."""

    node: NodeSettings
    inventory: InventorySettings
    observed: ObservedSettings
    host: HostSettings
    prestart: PreStartSettings
    limits: LimitSettings
    dcgm: DcgmSettings
    holder: str
    metrics: MetricsSettings

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings; raises SettingsInvalid."""
        node, environment = NodeSettings.from_environ(environ), Environment(environ)
        return cls(
            node=node,
            inventory=InventorySettings.from_environ(environ),
            observed=ObservedSettings.from_environ(environ),
            host=HostSettings.from_environ(environ),
            prestart=PreStartSettings.from_environ(environ),
            limits=LimitSettings.from_environ(environ),
            dcgm=DcgmSettings.from_environ(environ),
            holder=environment.text("POD_NAME", node.name),
            metrics=MetricsSettings.of(environment),
        )


def open_inventory(chosen: InventorySettings, *, node: str) -> Inventory:
    """Open the inventory of the configured backend."""
    if chosen.backend == "simulated":
        return SimulatedInventory(
            chosen.simulated_file,
            node=node,
            scan_seconds=chosen.scan_seconds,
            layouts=chosen.simulated_layouts / f"{node}.json",
        )
    return DriverInventory(
        chosen.driver, scan_seconds=chosen.scan_seconds, timeout_seconds=chosen.timeout_seconds
    )


def boot_id() -> str:
    """Return the ID of this boot of the node, which every container sees; empty: not known."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError as error:
        log.warning(
            "cannot read the boot ID, so errors from before the last boot still count: %s", error
        )
        return ""


async def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Run until cancelled or until a part fails.

    Raises:
        ExceptionGroup: a part failed.
    """
    inventory = open_inventory(settings.inventory, node=settings.node.name)
    try:
        await _connect_and_serve(inventory, settings, environ)
    finally:
        await inventory.close()


async def _connect_and_serve(
    inventory: Inventory, settings: Settings, environ: Mapping[str, str]
) -> None:
    exporter = Exporter(settings.dcgm.exporter, ExporterPods(settings.dcgm.namespaces))

    def forget() -> None:
        inventory.forget()
        exporter.forget()

    known_devices = KnownDevices(
        boot_id=boot_id(),
        hold_seconds=settings.inventory.hysteresis_seconds,
        on_forget=forget,
    )
    try:
        known_devices.update(await inventory.scan())
    except InventoryUnavailable as error:
        # Running pods continue; GPUNode shows the last known GPUs and why no scan succeeds.
        log.error("%s; scans continue every %g s", error, settings.inventory.scan_seconds)  # noqa: TRY400 - the text suffices
        known_devices.scan_failed(error)
    log.info("node %s has %d GPUs", settings.node.name, len(known_devices.devices))
    config = read_kubelet_config(settings)
    async with (
        Api.connect(environ) as api,
        PodResources.connect(
            resolve_on_host(settings.inventory.host_root, config.pod_resources_socket)
        ) as kubelet,
    ):
        node = NodeState(
            pods=PodStore(settings.observed.resources),
            specs=SpecFolder(settings.host.cdi),
            cgroups=Cgroups(settings.host.cgroup, config.cgroup_root),
            known_devices=known_devices,
            gang_memory=GangMemory(config.root_dir),
        )
        await _serve(settings, api, kubelet, inventory, node, exporter)


def read_kubelet_config(settings: Settings) -> KubeletConfig:
    """Return the configuration of this node's kubelet, as far as the agent can read it."""
    host_root, read = settings.inventory.host_root, KubeletConfig()
    if host_root != pathlib.Path("/"):
        read = read_kubelet(Root(host_root))
    for problem in read.problems:
        log.warning("the kubelet's configuration: %s", problem)
    config = read.with_settings(settings.host.kubelet)
    log.info("kubelet: root-dir %s, cgroupRoot %s", config.root_dir, config.cgroup_root)
    return config


async def _serve(
    settings: Settings,
    api: Api,
    kubelet: PodResources,
    inventory: Inventory,
    node: NodeState,
    exporter: Exporter,
) -> None:
    known_devices = node.known_devices
    node.specs.load()
    container_finder = ContainerFinder(node.pods, kubelet, api)
    mps = MpsFolder(settings.limits.mps) if settings.inventory.backend == "nvml" else None
    prestart = PreStart(
        node,
        container_finder,
        inventory,
        settings.prestart,
        mps,
        thread_percentages=settings.limits.thread_percentages,
    )
    node_mode = NodeMode(settings.observed.resources, settings.observed.of_other_vendors)
    foreign = _foreign_devices(settings, api)
    observer = Observer(node_mode, node.pods, kubelet, known_devices, foreign)
    device_plugins = _device_plugins(prestart, settings.host, node_mode)
    housekeeping = Housekeeping(
        node, container_finder, device_plugins, node_mode, settings.host.probe, mps
    )
    watch = Reflector(
        api,
        NODE_PODS,
        Both(node.pods, exporter.pods),
        selectors={"fieldSelector": f"spec.nodeName={settings.node.name}"},
    )
    idleness = Idleness(quiet_seconds=settings.inventory.idle_seconds)
    layouts = Layouts(node, node_mode, allowed=settings.inventory.mig_layouts)
    report = Report(node, node_mode, observer, layouts, idleness, now=api.clock.now, mps=mps)
    writer = GpuNodeWriter(api, report, node=settings.node.name)
    use, guard = PodUse(), _share_guard(node, mps, api, settings)
    collectors = (
        UnreadableObjects({"pods": watch}),
        GpuMetrics(known_devices, node.pods, use, node=settings.node.name),
        AgentMetrics(known_devices, writer, prestart.outcomes, guard.overruns if guard else None),
    )
    await observer.round()
    async with (
        _serve_metrics(collectors, api, settings) as metrics_server,
        asyncio.TaskGroup() as parts,
    ):
        parts.create_task(_await_metrics_server(metrics_server), name="metrics")
        parts.create_task(watchdog.watchdog(), name="watchdog")
        parts.create_task(watch.run(), name="pods")
        parts.create_task(_scan_forever(inventory, node, use, exporter, layouts), name="inventory")
        if settings.dcgm.exporter:
            parts.create_task(exporter.run(), name="DCGM exporter")
        parts.create_task(_beat_forever(api, settings), name="heartbeat")
        parts.create_task(observer.run(), name="observer")
        parts.create_task(foreign.run(), name="other vendors")
        parts.create_task(writer.run(), name="gpunode")
        if guard:
            parts.create_task(guard.run(), name="limits")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GPUNODE_SECONDS):
                await writer.written.wait()
        device_plugins.update(known_devices.devices.values())
        # Once before the plugins register: a kubelet that gets no device tokens rejects pods.
        housekeeping.round()
        parts.create_task(housekeeping.run(), name="housekeeping")
        while True:
            change = known_devices.next_change
            device_plugins.update(known_devices.devices.values())
            housekeeping.round()
            for started in device_plugins.take_unstarted():
                parts.create_task(started.registration.run(), name=started.plugin.resource)
            await change.wait()


@contextlib.asynccontextmanager
async def _serve_metrics(
    collectors: Iterable[Collector], api: Api, settings: Settings
) -> AsyncIterator[asyncio.Task[None] | None]:
    """Serve the metrics if a port is configured; otherwise the server's code is not loaded."""
    if not settings.metrics.port:
        yield None
        return
    from gpupack_httpserver import metrics  # noqa: PLC0415 - it takes 12 MiB

    async with metrics.shown(collectors, api=api, settings=settings.metrics) as serving:
        yield serving


async def _await_metrics_server(serving: asyncio.Task[None] | None) -> None:
    """Wait until the server ends, which is an error; wait for ever if no port is configured."""
    await (serving or asyncio.Event().wait())


def _share_guard(
    node: NodeState, mps: MpsFolder | None, api: Api, settings: Settings
) -> Guard | None:
    if mps is None:
        return None
    reader = ProcessReader(
        command(settings.inventory.driver),
        timeout_seconds=settings.inventory.timeout_seconds,
    )
    return Guard(node, mps, reader, _event_writer(api, settings), settings.limits)


def _foreign_devices(settings: Settings, api: Api) -> ForeignDevices:
    async def labels() -> Mapping[str, str]:
        return (await api.get(NODES, settings.node.name)).metadata.labels

    libraries: dict[str, VendorLibrary] = {}
    if settings.inventory.backend == "nvml" and amd_prober.is_installed():
        libraries[amd_prober.MODULE] = DriverProcess(
            amd_prober.COMMAND,
            timeout_seconds=settings.inventory.timeout_seconds,
            on_event=lambda: None,
            vendor="AMD",
        )
    return ForeignDevices(settings.observed.vendors, labels, libraries)


def _device_plugins(prestart: PreStart, host: HostSettings, node_mode: NodeMode) -> DevicePlugins:
    def make(resource: str) -> DevicePlugin:
        plugin, is_share = PluginServicer(resource, prestart.prepare), resource == names.GPU_SHARE
        return DevicePlugin(
            plugin,
            Registration(plugin, host.device_plugins, node_mode.may_register),
            prefix="share" if is_share else resource.rpartition("/")[2],
            tokens_per_gpu=names.SHARE_SLOTS_PER_GPU if is_share else 1,
        )

    return DevicePlugins(make)


def _event_writer(api: Api, settings: Settings) -> WriteEvent:
    events = EventWriter(api, Reporter("gpupack.dev/agent", settings.holder, "LimitShare"))

    async def write_event(record: Record, event: Said) -> None:
        meta = ObjectMeta(name=record.name, namespace=record.namespace, uid=record.uid)
        await events.write(About("v1", "Pod", meta), event)

    return write_event


async def _beat_forever(api: Api, settings: Settings) -> None:
    await heartbeat.beat_forever(
        api,
        names.heartbeat_lease(settings.node.name),
        node=settings.node.name,
        namespace=settings.node.system_namespace,
        holder=settings.holder,
        duration_seconds=settings.node.heartbeat_duration_seconds,
    )


async def _scan_forever(
    inventory: Inventory, node: NodeState, use: PodUse, exporter: Exporter, layouts: Layouts
) -> None:
    """Scan whenever something may have changed; keep the known GPUs if a scan fails."""
    known_devices = node.known_devices
    while True:
        await inventory.changed()
        try:
            known_devices.update(exporter.merge(await inventory.scan()))
            if await layouts.round(inventory):
                known_devices.update(exporter.merge(await inventory.scan()))
            seen = known_devices.findings
            use.update(seen.facts, node.pods.by_uid.values(), seen.devices)
        except InventoryUnavailable as error:
            if known_devices.outage is None or known_devices.outage.message != str(error):
                log.error("%s; the last known GPUs stay", error)  # noqa: TRY400 - the text suffices
            known_devices.scan_failed(error)
            if not known_devices.findings.facts:
                use.forget_memory()
