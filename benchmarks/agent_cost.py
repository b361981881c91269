# SPDX-License-Identifier: Apache-2.0
"""Measures what reading a node's GPUs and serving metrics costs, with recorded driver answers.

    python benchmarks/agent_cost.py [--gpus 8] [--pods 16] [--seconds 120] [--state rest]

Runs the agent's inventory as the agent does: the process that calls the driver, scans at the
default interval, and the metrics. Prints CPU and memory of both processes, and the time of a
scrape. Not included: the calls' own time in the driver, and the agent's other work (for a running
agent `kubectl top` and /proc show it).
"""

import argparse
import asyncio
import dataclasses
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator

import prometheus_client

from gpupack_agent.gpu_metrics import GpuMetrics
from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.pod_use import PodUse
from gpupack_agent.pods import PodStore, PodView
from gpupack_crds.devices import DeviceShare, encode_devices

RECORDED = pathlib.Path(__file__).parents[1] / "tests/helpers/recorded_driver.py"
SCAN_SECONDS = 10.0
SCRAPES = 50
WARM_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU time and memory of one process so far."""

    cpu_seconds: float
    memory_mib: float
    """Anonymous memory, without mapped files."""


def usage(pid: int) -> Usage:
    """Read it from /proc."""
    folder = pathlib.Path("/proc") / str(pid)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Usage(
        ticks / os.sysconf("SC_CLK_TCK"),
        int(status["RssAnon"].split()[0]) / 1024,
    )


def children() -> list[int]:
    """Return the PIDs of this process's children."""
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(each) for each in listed.split()]


def pods(number: int, uuids: list[str]) -> Iterator[PodView]:
    """Yield so many pods, each with half a GPU."""
    for index in range(number):
        share = DeviceShare(uuid=uuids[index // 2 % len(uuids)], percent=50, memory_mib=65536)
        yield PodView(
            namespace=f"team-{index % 4}",
            name=f"trainer-{index}",
            uid=f"uid-{index}",
            annotation=encode_devices([share]),
            started=True,
        )


async def scan_forever(inventory: DriverInventory, known: KnownDevices) -> None:
    """Scan at the agent's interval, without end."""
    while True:
        await inventory.changed()
        known.update(await inventory.scan())


async def measure(arguments: argparse.Namespace) -> None:
    """Run, and print a line for each process and for a scrape."""
    inventory = DriverInventory(
        DriverSearch(pathlib.Path("/nowhere")),
        scan_seconds=SCAN_SECONDS,
        answer_seconds=30,
        run=(sys.executable, str(RECORDED), arguments.state, str(arguments.gpus)),
    )
    known = KnownDevices()
    known.update(await inventory.scan())
    store = PodStore()
    store.by_uid = {pod.uid: pod for pod in pods(arguments.pods, sorted(known.devices))}
    scanning = asyncio.create_task(scan_forever(inventory, known))
    await asyncio.sleep(WARM_SECONDS)
    (driver,) = children()
    before, at = (usage(os.getpid()), usage(driver)), time.monotonic()
    await asyncio.sleep(arguments.seconds)
    after, took = (usage(os.getpid()), usage(driver)), time.monotonic() - at
    for name, one, other in zip(("agent's side", "driver's process"), before, after, strict=True):
        percent = 100 * (other.cpu_seconds - one.cpu_seconds) / took
        print(f"{name}: {percent:.2f} % of a core, {other.memory_mib:.0f} MiB")
    registry = prometheus_client.CollectorRegistry()
    registry.register(GpuMetrics(known, store, PodUse(), node="node-1"))
    times = sorted(scrape(registry) for _ in range(SCRAPES))
    print(
        f"a scrape of {arguments.gpus} GPUs, {arguments.pods} pods: "
        f"{statistics.median(times):.1f} ms, at most {times[-1]:.1f} ms"
    )
    scanning.cancel()
    await inventory.close()


def scrape(registry: prometheus_client.CollectorRegistry) -> float:
    """Return the milliseconds of one scrape."""
    at = time.perf_counter()
    prometheus_client.generate_latest(registry)
    return 1000 * (time.perf_counter() - at)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--state", choices=("rest", "load"), default="rest")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
