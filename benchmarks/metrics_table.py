# SPDX-License-Identifier: Apache-2.0
"""Writes the table of metrics in docs/monitoring.md from what the components register.

    python benchmarks/metrics_table.py [--write]

The components are constructed as in a cluster and do not run: there are no calls to an API server.
"""

import argparse
import asyncio
import pathlib
import tempfile
import types
from collections.abc import Iterable
from typing import Any, Final

import prometheus_client
from documents import replaced
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

ROOT: Final = pathlib.Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/monitoring.md"
MARKS: Final = "metrics"
"""Marks around the table."""
SUFFIXES: Final = {"counter": "_total"}


def of_extender(folder: pathlib.Path) -> prometheus_client.CollectorRegistry:
    """Return an extender's registry; its loop must run."""
    from gpupack_extender import app  # noqa: PLC0415 - the parts take a second each
    from gpupack_extender.settings import Settings  # noqa: PLC0415

    environ = _tls("GPUPACK_TLS", folder) | {"POD_NAME": "scheduler-0"}
    return app.build(Settings.from_environ(environ), _api(), _api()).metrics.registry


def of_operator(folder: pathlib.Path) -> prometheus_client.CollectorRegistry:
    """Return an operator's registry."""
    from gpupack_operator.service import MetricSources  # noqa: PLC0415

    return _registry(MetricSources().collectors(), folder)


def of_agent(folder: pathlib.Path) -> prometheus_client.CollectorRegistry:
    """Return an agent's registry."""
    from gpupack_agent.agent_metrics import AgentMetrics  # noqa: PLC0415
    from gpupack_agent.gpu_metrics import GpuMetrics  # noqa: PLC0415
    from gpupack_agent.gpunode import GpuNodeWriter  # noqa: PLC0415
    from gpupack_agent.known_devices import KnownDevices  # noqa: PLC0415
    from gpupack_agent.pod_use import PodUse  # noqa: PLC0415
    from gpupack_agent.pods import PodStore  # noqa: PLC0415
    from gpupack_kubeclient.metrics import UnreadableObjects  # noqa: PLC0415

    devices, api = KnownDevices(), _api()
    writer = GpuNodeWriter(api, None, node="node-1")  # type: ignore[arg-type]  # nothing is written
    return _registry(
        (
            UnreadableObjects({"pods": types.SimpleNamespace(unreadable=0)}),
            GpuMetrics(devices, PodStore(()), PodUse(), node="node-1"),
            AgentMetrics(devices, writer, {}, {}),
        ),
        folder,
    )


def of_api(folder: pathlib.Path) -> prometheus_client.CollectorRegistry:
    """Return an API's registry; its loop must run."""
    from gpupack_apiserver import app  # noqa: PLC0415
    from gpupack_apiserver.settings import Settings  # noqa: PLC0415

    settings = Settings.from_environ(_tls("GPUPACK_TLS", folder))
    return app.build(settings, _api()).registry


PARTS: Final = {
    "extender": of_extender,
    "operator": of_operator,
    "agent": of_agent,
    "api": of_api,
}


async def registries() -> dict[str, prometheus_client.CollectorRegistry]:
    """Return the registries of all components by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _certificate(folder)
        return {part: of(folder) for part, of in PARTS.items()}


def table(found: dict[str, prometheus_client.CollectorRegistry]) -> str:
    """Return a line for each family; a family of several components has one line."""
    lines: dict[str, tuple[Metric, tuple[str, ...], list[str]]] = {}
    for part, registry in found.items():
        for family in registry.collect():
            shown = labels(family, registry)
            lines.setdefault(family.name, (family, shown, []))[2].append(part)
    rows = [_row(*lines[name]) for name in sorted(lines, key=_order)]
    head = "| metric | type | labels | component | meaning |\n|---|---|---|---|---|"
    return "\n".join([head, *rows])


def _row(family: Metric, names: tuple[str, ...], parts: list[str]) -> str:
    name = family.name + SUFFIXES.get(family.type, "")
    help_text = family.documentation.replace("|", r"\|")
    shown = ", ".join(f"`{label}`" for label in names)
    if family.name.startswith("DCGM"):
        shown = "as dcgm-exporter"
    return f"| `{name}` | {family.type} | {shown} | {', '.join(parts)} | {help_text} |"


def _order(name: str) -> tuple[bool, str]:
    """Return a sort key: gpupack's own metrics first."""
    return not name.startswith("gpupack"), name


def labels(family: Metric, registry: Any) -> tuple[str, ...]:
    """Return the labels of a family, also if it has no series."""
    own = getattr(family, "_labelnames", None)
    if own is None:
        # Without series the labels are only in the library's internals.
        known = registry._names_to_collectors  # noqa: SLF001 - see above
        own = getattr(known.get(family.name), "_labelnames", None) or ()
    if not own and family.samples:
        own = tuple(family.samples[0].labels)
    return tuple(label for label in own if label != "le")


def _registry(
    collectors: Iterable[Collector], folder: pathlib.Path
) -> prometheus_client.CollectorRegistry:
    from gpupack_httpserver.certificate import (  # noqa: PLC0415
        CertificateMetrics,
        ServedCertificate,
        ServerFiles,
    )
    from gpupack_kubeclient.metrics import KubeRequests  # noqa: PLC0415

    registry = prometheus_client.CollectorRegistry()
    files = ServerFiles(str(folder / "tls.crt"), str(folder / "tls.key"))
    expiry = CertificateMetrics(ServedCertificate(files))
    for collector in (*collectors, KubeRequests(_api()), expiry):
        registry.register(collector)
    return registry


def _api() -> Any:
    """Return a connection that is not used."""
    from gpupack_kubeclient.client import Api  # noqa: PLC0415

    return Api(None)  # type: ignore[arg-type]


def _tls(prefix: str, folder: pathlib.Path) -> dict[str, str]:
    return {f"{prefix}_CERT": str(folder / "tls.crt"), f"{prefix}_KEY": str(folder / "tls.key")}


def _certificate(folder: pathlib.Path) -> None:
    import sys  # noqa: PLC0415 - for the helper of the tests alone

    sys.path.insert(0, str(ROOT / "tests/helpers"))
    from self_signed import self_signed  # noqa: PLC0415

    self_signed(folder)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    rows = table(asyncio.run(registries()))
    if parser.parse_args().write:
        PAGE.write_text(replaced(PAGE.read_text(), MARKS, rows))
    else:
        print(rows)


if __name__ == "__main__":
    main()
