# SPDX-License-Identifier: Apache-2.0
"""The agent on a machine without a cluster: its GPUs, their health and their load, as metrics.

It hands out nothing and writes nothing: the library's ledger records the holders there, and
`gpupack-api`'s server of one machine shows them. The agent listens on loopback only and without
authentication, as DCGM exporter does: `nvidia-smi` shows the same data to every user of the
machine.
"""

import asyncio
import dataclasses
import logging
import pathlib
import socket
from collections.abc import Mapping
from typing import Final

import prometheus_client

from gpupack_agent import liveness, watchdog
from gpupack_agent.agent import boot_id, open_inventory
from gpupack_agent.errors import DriverTimeout, InventoryUnavailable
from gpupack_agent.gpu_metrics import GpuMetrics
from gpupack_agent.inventory.base import Inventory
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.pod_use import PodUse
from gpupack_agent.pods import PodStore
from gpupack_agent.settings import InventorySettings
from gpupack_kubeclient.environment import Environment

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65535
SIGN_OF_LIFE_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the agent of one machine."""

    node: str
    """NODE_NAME: the name of the machine; default: its host name."""
    inventory: InventorySettings
    port: int
    """GPUPACK_METRICS_PORT: the port of HTTP on loopback."""
    probe: pathlib.Path
    """GPUPACK_PROBE_FILE: the file that a live agent writes and `gpupack_agent.probe` reads."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings; raises SettingsInvalid."""
        environment = Environment(environ)
        return cls(
            node=environment.text("NODE_NAME", socket.gethostname()),
            inventory=InventorySettings.from_environ(environ),
            port=environment.whole("GPUPACK_METRICS_PORT", 8481, most=MAX_PORT),
            probe=environment.path("GPUPACK_PROBE_FILE", str(liveness.FILE)),
        )


async def run(settings: Settings) -> None:
    """Run until cancelled.

    Raises:
        InventoryUnavailable: at start; later failures to scan are logged.
        OSError: the port is in use.
        ExceptionGroup: a part failed, such as the writing of the sign of life.
    """
    inventory = open_inventory(settings.inventory, node=settings.node)
    try:
        await _serve(inventory, settings)
    finally:
        await inventory.close()


async def _serve(inventory: Inventory, settings: Settings) -> None:
    known_devices = KnownDevices(
        boot_id=boot_id(),
        hold_seconds=settings.inventory.hysteresis_seconds,
        on_forget=inventory.forget,
    )
    try:
        known_devices.update(await inventory.scan())
    except DriverTimeout as error:
        known_devices.scan_failed(error)
    registry = prometheus_client.CollectorRegistry()
    registry.register(GpuMetrics(known_devices, PodStore(()), PodUse(), node=socket.gethostname()))
    server, thread = prometheus_client.start_http_server(settings.port, LOOPBACK, registry)
    log.info(
        "%d GPUs%s; metrics are at http://%s:%d/metrics",
        len(known_devices.devices),
        ", which are simulated" if settings.inventory.backend == "simulated" else "",
        LOOPBACK,
        settings.port,
    )
    try:
        async with asyncio.TaskGroup() as parts:
            parts.create_task(watchdog.watchdog(), name="watchdog")
            parts.create_task(_scan_forever(inventory, known_devices), name="inventory")
            parts.create_task(_write_sign_of_life_forever(settings.probe), name="sign of life")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _scan_forever(inventory: Inventory, known_devices: KnownDevices) -> None:
    while True:
        await inventory.changed()
        try:
            known_devices.update(await inventory.scan())
        except InventoryUnavailable as error:
            known_devices.scan_failed(error)
            log.error("%s; the last known GPUs stay", error)  # noqa: TRY400 - the text suffices


async def _write_sign_of_life_forever(path: pathlib.Path) -> None:
    while True:
        liveness.write(path, registered=False)
        await asyncio.sleep(SIGN_OF_LIFE_SECONDS)
