# SPDX-License-Identifier: Apache-2.0
"""Runs schedulers that place the same pods: gpupack's, and stock kube-schedulers on this host."""

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from harness import Kube, wait_for
from parts import SCHEDULER, leader
from simulated_fleet import EXTENDED_RESOURCE

from gpupack_crds import names
from gpupack_devcluster.settings import Paths

SECURE_PORT = "10359"
END_SECONDS = 20.0
NO_LIMIT = 10_000


@dataclasses.dataclass(frozen=True)
class Scheduler:
    """A scheduler for pods that request GPUs by a resource.

    Attributes:
        name: value of the pods' schedulerName.
        percentage: percentage of nodes to score; None: the default profile's.
        limited: whether it sends at most 50 requests a second, the default, which limits bindings.
    """

    title: str
    name: str
    resource: str
    percentage: int | None = None
    limited: bool = True

    @property
    def parts(self) -> tuple[str, ...]:
        """Its own processes, by the names of part_times."""
        gpupack = self.resource == names.GPU
        return ("extender", "kube-scheduler of gpupack") if gpupack else ("stock kube-scheduler",)


OURS = Scheduler("gpupack", names.SCHEDULER_NAME, names.GPU)
STOCK = Scheduler("stock, default", "stock", EXTENDED_RESOURCE)
UNLIMITED = Scheduler(
    "stock, unlimited client", "stock-unlimited", EXTENDED_RESOURCE, limited=False
)
ALL_NODES = Scheduler(
    "stock, unlimited client, all nodes",
    "stock-all-nodes",
    EXTENDED_RESOURCE,
    percentage=100,
    limited=False,
)
ALL = (OURS, STOCK, UNLIMITED, ALL_NODES)


def priority_class(gpus: int) -> str:
    """Return the priority class with which a stock scheduler takes pods of so many GPUs first."""
    return f"scheduling-rate-{gpus}"


@contextlib.contextmanager
def largest_first(kube: Kube, sizes: Collection[int]) -> Iterator[None]:
    """Create priority classes by size, without preemption, for as long as the context lasts."""
    classes = [priority_class(gpus) for gpus in sizes]
    for name, gpus in zip(classes, sizes, strict=True):
        manifest = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": gpus,
            "preemptionPolicy": "Never",
        }
        kube.submit(manifest)
    try:
        yield
    finally:
        kube.kubectl("delete", "priorityclass", *classes)


@contextlib.contextmanager
def gpupack_stopped(system: Kube) -> Iterator[None]:
    """Stop gpupack's scheduler; restore its replicas at the end."""
    replicas = system.get("deployment", "gpupack-scheduler")["spec"]["replicas"]
    _scale(system, 0)
    try:
        yield
    finally:
        _scale(system, replicas)
        system.insist("rollout", "status", SCHEDULER, "--timeout=180s")


@contextlib.contextmanager
def running(scheduler: Scheduler, system: Kube, paths: Paths) -> Iterator[None]:
    """Run one process of a scheduler, which may need some seconds before its first pod."""
    if scheduler is OURS:
        _scale(system, 1)
        try:
            yield
        finally:
            _scale(system, 0)
        return
    config = paths.log / f"{scheduler.name}.json"
    config.write_text(json.dumps(_configuration(scheduler, paths)))
    command = [
        str(paths.bin / "kube-scheduler"),
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={SECURE_PORT}",
        "--authentication-skip-lookup=true",
    ]
    log = Path(f"{config.with_suffix('')}.log")
    with log.open("ab") as output, subprocess.Popen(command, stderr=output) as process:  # noqa: S603
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_leader(system: Kube) -> None:
    """Wait until gpupack's scheduler decides."""
    wait_for(lambda: leader(system, "scheduler"), seconds=120, what="a scheduler that leads")


def _configuration(scheduler: Scheduler, paths: Paths) -> dict[str, object]:
    """Return the default configuration with the scheduler's name and settings."""
    configuration: dict[str, object] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(paths.pki / "scheduler.kubeconfig")}
        | ({} if scheduler.limited else {"qps": NO_LIMIT, "burst": NO_LIMIT}),
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": scheduler.name}],
    }
    if scheduler.percentage is not None:
        configuration["percentageOfNodesToScore"] = scheduler.percentage
    return configuration


def _scale(system: Kube, replicas: int) -> None:
    system.scale("deployment", "gpupack-scheduler", replicas)
    if replicas == 0:
        selector = "--selector=app.kubernetes.io/component=scheduler"
        system.insist("wait", "--for=delete", "pod", selector, "--timeout=120s")
