# SPDX-License-Identifier: Apache-2.0
"""Measures what an idle agent costs: CPU and memory of its processes and probes.

    python benchmarks/agent_at_rest.py [--gpus 8] [--seconds 120] [--scrape SECONDS] [--real]
        [--profile FILE]

The agent runs as in a cluster: it reaches an API server over TLS by its service account's files,
registers with a kubelet that speaks its protocol, and has the chart's settings. Both servers are
the unit tests', in this process, which is not counted. The process that calls the driver has
recorded answers of an H200; with --real it calls this machine's driver. With --scrape it serves
its metrics over HTTPS, and they are scraped every so many seconds.

Prints for each process: percent of a core, its own MiB (anonymous) and its part of all (PSS). The
probes count as often as the chart runs them. With --profile the agent's calls are written.
"""

import argparse
import asyncio
import contextlib
import cProfile
import dataclasses
import functools
import http
import json
import os
import pathlib
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).parents[1]
HELPERS = ROOT / "tests/helpers"
WARM_SECONDS = 20.0
PROBES = 10
NODE = "node-1"


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU time and memory of one process so far."""

    cpu_seconds: float
    own_mib: float
    part_mib: float


def usage(pid: int) -> Usage:
    """Read it from /proc."""
    folder = pathlib.Path("/proc") / str(pid)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    memory = dict(
        line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:]
    )
    own, part = (int(memory[name].split()[0]) / 1024 for name in ("Anonymous", "Pss"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), own, part)


def children(pid: int) -> list[int]:
    """Return the PIDs of a process's children, of all its threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(each) for path in tasks for each in path.read_text().split())


def environment(folder: pathlib.Path, port: int) -> dict[str, str]:
    """Return the agent's environment as the chart sets it, with folders of this benchmark."""
    values = yaml.safe_load((ROOT / "charts/gpupack/values.yaml").read_text())
    own = {
        "NODE_NAME": NODE,
        "KUBERNETES_SERVICE_HOST": "localhost",
        "KUBERNETES_SERVICE_PORT": str(port),
        "GPUPACK_INVENTORY": "nvml",
        "GPUPACK_OBSERVED_RESOURCES": ",".join(values["observedResources"]),
        "GPUPACK_VENDORS": json.dumps(values["vendors"]),
        "GPUPACK_DEVICE_PLUGINS_DIR": str(folder / "kubelet/device-plugins"),
        "GPUPACK_KUBELET_ROOT_DIR": str(folder / "kubelet"),
        "GPUPACK_CDI_DIR": str(folder / "cdi"),
        "GPUPACK_CGROUP_DIR": str(folder / "cgroup"),
        "GPUPACK_MPS_DIR": str(folder / "mps"),
        "GPUPACK_PROBE_FILE": str(folder / "alive"),
        "GPUPACK_LOG_LEVEL": "WARNING",
    }
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | own


@contextlib.asynccontextmanager
async def node(folder: pathlib.Path) -> AsyncIterator[tuple[Mapping[str, str], Any]]:
    """Run an API server and a kubelet; yield the agent's environment and the kubelet."""
    sys.path.insert(0, str(HELPERS))
    from aiohttp import web  # noqa: PLC0415 - the agent that is measured starts from this file
    from fake_api import ApiServer  # noqa: PLC0415
    from fake_kubelet import Kubelet  # noqa: PLC0415
    from self_signed import self_signed  # noqa: PLC0415

    certificate, key = self_signed(folder)
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    (folder / "token").write_text("token")
    (folder / "cgroup/kubepods").mkdir(parents=True)
    (folder / "cgroup/cgroup.controllers").write_text("cpu memory pids\n")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.AppRunner(ApiServer().app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    kubelet = Kubelet(folder / "kubelet")
    await kubelet.start()
    try:
        yield environment(folder, runner.addresses[0][1]), kubelet
    finally:
        await kubelet.stop()
        await runner.cleanup()


async def listening(plugin: Any) -> None:
    """Read a plugin's device lists, as a kubelet does for as long as it runs."""
    from gpupack_agent.api import deviceplugin_pb2  # noqa: PLC0415 - as below

    async for _ in plugin.ListAndWatch(deviceplugin_pb2.Empty()):
        pass


async def measure(arguments: argparse.Namespace) -> None:
    """Run an agent, and print what it took."""
    with tempfile.TemporaryDirectory(prefix="gp-") as name:
        folder = pathlib.Path(name)
        async with node(folder) as (environ, kubelet):
            from scraping import metrics_environ  # noqa: PLC0415 - as in node

            options = ["--serve", name, "--gpus", str(arguments.gpus)]
            options += ["--real"] if arguments.real else []
            shown, port = metrics_environ(folder) if arguments.scrape else ({}, 0)
            options += ["--profile", arguments.profile] if arguments.profile else []
            agent = await asyncio.create_subprocess_exec(
                sys.executable, __file__, *options, env={**environ, **shown}
            )
            try:
                await asyncio.sleep(WARM_SECONDS / 2)
                streams = [
                    asyncio.create_task(listening(kubelet.plugin(resource)))
                    for resource in ("gpupack.dev/gpu", "gpupack.dev/gpu-share")
                ]
                await asyncio.sleep(WARM_SECONDS / 2)
                if port:
                    streams.append(asyncio.create_task(scraping(port, folder, arguments.scrape)))
                pids = {"agent": agent.pid, "driver's process": children(agent.pid)[0]}
                at, before = time.monotonic(), {name: usage(pid) for name, pid in pids.items()}
                await asyncio.sleep(arguments.seconds)
                after = {name: usage(pid) for name, pid in pids.items()}
                took = time.monotonic() - at
                probes = await asyncio.to_thread(probing, environ)
                for stream in streams:
                    stream.cancel()
            finally:
                # The kubelet waits for its plugins' connections to end.
                agent.terminate()
                await agent.wait()
    show(before, after, took, probes)


async def scraping(port: int, folder: pathlib.Path, every_seconds: float) -> None:
    """Scrape the metrics repeatedly, as one Prometheus does."""
    from scraping import answer  # noqa: PLC0415 - as in node

    while True:
        status, _ = await answer(port, folder)
        assert status == http.HTTPStatus.OK, status  # noqa: S101 - nothing else is measured here
        await asyncio.sleep(every_seconds)


def show(
    before: Mapping[str, Usage], after: Mapping[str, Usage], took: float, probes: float
) -> None:
    """Print a line for each process, and the sum."""
    percents = {
        name: 100 * (after[name].cpu_seconds - before[name].cpu_seconds) / took for name in after
    }
    for name, used in after.items():
        print(
            f"{name}: {percents[name]:.2f} % of a core, {used.own_mib:.1f} MiB of its own, "
            f"{used.part_mib:.1f} MiB with its part of shared files"
        )
    print(f"probes: {100 * probes:.2f} % of a core")
    print(
        f"together: {sum(percents.values()) + 100 * probes:.2f} % of a core, "
        f"{sum(each.own_mib for each in after.values()):.1f} MiB of their own, "
        f"{sum(each.part_mib for each in after.values()):.1f} MiB with their part"
    )


def probing(environ: Mapping[str, str]) -> float:
    """Return the CPU seconds per second that the chart's probes take."""
    template = (ROOT / "charts/gpupack/templates/agent/daemonset.yaml").read_text()
    _, liveness, readiness = (
        int(line.split(":")[1]) for line in template.splitlines() if "periodSeconds:" in line
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(PROBES):
        command = [sys.executable, "-m", "gpupack_agent.probe", "--ready"]
        subprocess.run(command, check=True, env=environ)  # noqa: S603 - our own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds / PROBES * (1 / liveness + 1 / readiness)


def serve(arguments: argparse.Namespace) -> None:
    """Run the agent in this process."""
    from gpupack_agent import __main__, agent  # noqa: PLC0415 - not in the process of the servers
    from gpupack_agent.inventory.driver import DriverInventory  # noqa: PLC0415
    from gpupack_agent.inventory.driver_root import DriverSearch  # noqa: PLC0415
    from gpupack_kubeclient import transport  # noqa: PLC0415

    account = pathlib.Path(arguments.serve)
    transport.connect = functools.partial(transport.connect, account=account)

    def recorded(settings: agent.Settings) -> DriverInventory:
        chosen, helper = settings.inventory, str(HELPERS / "recorded_driver.py")
        return DriverInventory(
            DriverSearch(pathlib.Path("/nowhere")),
            scan_seconds=chosen.scan_seconds,
            timeout_seconds=chosen.timeout_seconds,
            run=(sys.executable, helper, "rest", str(arguments.gpus)),
        )

    if not arguments.real:
        agent.open_inventory = recorded  # type: ignore[assignment]
    profile = cProfile.Profile() if arguments.profile else None
    if profile:
        profile.enable()
    try:
        __main__.run.callback()  # type: ignore[misc]
    finally:
        if profile:
            profile.disable()
            profile.dump_stats(arguments.profile)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--scrape", type=float, default=0.0)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--profile", default="")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments)
    else:
        asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
