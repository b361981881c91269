# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus on this host that scrapes the parts of the dev cluster, by the chart's files.

It has the `scrape_configs` of files/monitoring/scrape.yaml. Debian's build has no Kubernetes
discovery, so a file lists the pods with the labels that discovery would set.
"""

import base64
import contextlib
import dataclasses
import json
import math
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import yaml
from background import running
from harness import ROOT, STATE, Kube, wait_for

FILES = ROOT / "charts/gpupack/files/monitoring"
ACCOUNT = "monitoring-test"
REFRESH_SECONDS = 2.0
PORTS = {"https", "metrics"}


@dataclasses.dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str

    def query(self, expr: str, *, at: float | None = None) -> list[dict[str, Any]]:
        """Series and values of now, or of that time."""
        given = {"query": expr} | ({} if at is None else {"time": str(at)})
        answer = httpx.get(f"{self.url}/api/v1/query", params=given, timeout=30).json()
        assert answer["status"] == "success", (expr, answer)
        return answer["data"]["result"]

    def samples(self, selector: str, begin: float, end: float) -> list[dict[str, Any]]:
        """Series with the values of that time as they were stored, none at a moment between."""
        seconds = math.ceil(end - begin)
        series = self.query(f"{selector}[{seconds}s]", at=end)
        return [each for each in series if each["values"]]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, and how its last evaluation went."""
        groups = httpx.get(f"{self.url}/api/v1/rules", timeout=30).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def up(self) -> dict[str, int]:
        """Return how many targets of each job answer."""
        counts: dict[str, int] = {}
        for series in self.query("up"):
            job = series["metric"]["job"]
            counts[job] = counts.get(job, 0) + int(series["value"][1])
        return counts


@contextlib.contextmanager
def prometheus(
    system: Kube,
    folder: pathlib.Path,
    *,
    rules: pathlib.Path = FILES / "rules.yaml",
    every_seconds: float = 1.0,
) -> Iterator[Prometheus]:
    """Run one until the block ends.

    Args:
        system: where the parts are.
        folder: for its files.
        rules: that it evaluates.
        every_seconds: between two scrapes, and two evaluations.
    """
    _write_ca(system, folder)
    (folder / "token").write_text(_token(system))
    configuration = {
        "global": {
            "scrape_interval": _duration(every_seconds),
            "scrape_timeout": _duration(every_seconds),
            "evaluation_interval": _duration(every_seconds),
        },
        "rule_files": [str(rules)],
        "scrape_configs": list(_jobs(folder)),
    }
    tell_targets(system, folder)
    with (
        started(configuration, folder) as shown,
        running(lambda: tell_targets(system, folder), lambda: REFRESH_SECONDS),
    ):
        yield shown


@contextlib.contextmanager
def started(configuration: dict[str, Any], folder: pathlib.Path) -> Iterator[Prometheus]:
    """Run one with this configuration."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    command = [
        _binary(),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    shown = Prometheus(f"http://127.0.0.1:{port}")
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            wait_for(lambda: _answers(shown.url), seconds=30, what="Prometheus is ready")
            yield shown
        finally:
            process.terminate()


def tell_targets(system: Kube, folder: pathlib.Path) -> None:
    """Write down the pods there are now, by component; while none can be listed nothing changes."""
    done = system.kubectl("get", "pods", "--selector=app.kubernetes.io/name=gpupack", "-o", "json")
    if done.returncode != 0:
        return
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in json.loads(done.stdout)["items"]:
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        found.setdefault(component, []).extend(_targets(pod))
    for component in ("scheduler", "operator", "agent", "api"):
        path = folder / f"{component}.json"
        text = json.dumps(found.get(component, []))
        if not path.exists() or path.read_text() != text:
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").replace(path)


def _targets(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    address = pod["status"].get("podIP")
    for container in pod["spec"]["containers"] if address else ():
        for port in container.get("ports", ()):
            labels = {
                "__meta_kubernetes_pod_container_port_name": port.get("name", ""),
                "__meta_kubernetes_pod_phase": pod["status"].get("phase", ""),
                "__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"],
                "__meta_kubernetes_pod_name": pod["metadata"]["name"],
            }
            yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


def _jobs(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load((FILES / "scrape.yaml").read_text())["scrape_configs"]:
        ca = pathlib.Path(job["tls_config"]["ca_file"]).name
        (discovery,) = job.pop("kubernetes_sd_configs")
        component = discovery["selectors"][0]["label"].partition("=")[2]
        yield job | {
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": job["tls_config"] | {"ca_file": str(folder / ca)},
            "file_sd_configs": [{"files": [str(folder / f"{component}.json")]}],
        }


def _write_ca(system: Kube, folder: pathlib.Path) -> None:
    for name in ("gpupack-extender", "gpupack-metrics", "gpupack-api"):
        secret = json.loads(system.insist("get", "secret", f"{name}-certificate", "-o", "json"))
        (folder / f"{name}.crt").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))


def _token(system: Kube) -> str:
    """Return a token of an account that may get /metrics; the account stays, as it is harmless."""
    role = (
        "--clusterrole=gpupack-metrics-reader",
        f"--serviceaccount={system.namespace}:{ACCOUNT}",
    )
    system.kubectl("create", "serviceaccount", ACCOUNT)
    system.kubectl("create", "clusterrolebinding", ACCOUNT, *role)
    return system.insist("create", "token", ACCOUNT, "--duration=8h").strip()


def forget_account(system: Kube) -> None:
    """It is gone as it came."""
    system.kubectl("delete", "clusterrolebinding", ACCOUNT, "--ignore-not-found")
    system.kubectl("delete", "serviceaccount", ACCOUNT, "--ignore-not-found")


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/-/ready").status_code == httpx.codes.OK
    return False


def _binary() -> str:
    found = shutil.which("prometheus", path=str(STATE / "bin")) or shutil.which("prometheus")
    assert found, "there is no Prometheus: run `make prometheus`"
    return found


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
