# SPDX-License-Identifier: Apache-2.0
"""Breaks one thing after the other while jobs come and go and a Prometheus looks on.

Each break lasts for as long as its alerts wait and a while more, and is followed by a rest. With
`speed` above 1 rules wait that much less; the expressions are the chart's own.
"""

import contextlib
import dataclasses
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from alert_judge import Broken, Fired, Verdict, judge
from alert_rules import waits_seconds
from background import running
from chaos import PROCESSES, kill_process
from harness import Kube, wait_for
from manifests import Judged, gpujob
from node_faults import agent_down
from parts import OPERATOR, SCHEDULER, all_up, pods_of_part
from pausing import pod_paused
from prometheus_run import Prometheus
from simulated_layout import inventory_of, write

from gpupack_devcluster.driver import ClusterDriver

TAKES_SECONDS = 25.0
"""Until a break shows in the metrics: pods end, a GPU is found missing, a connection times out."""
REST_SECONDS = 15.0
RATE_SECONDS = 300.0
"""For so long after its end a break is seen by rates over five minutes."""
GAP_SECONDS = 10.0
"""An alert that does not fire for so long has ended."""


@dataclasses.dataclass(frozen=True)
class Break:
    """A way to break something. `max_seconds`: it mends itself after so long."""

    name: str
    how: Callable[[], contextlib.AbstractContextManager[None]]
    expected: frozenset[str]
    allowed: frozenset[str] = frozenset()
    fades_seconds: float = RATE_SECONDS
    max_seconds: float = float("inf")

    def lasts_seconds(self, speed: float) -> float:
        """Until its alerts fire."""
        return max(map(waits_seconds, self.expected), default=0) / speed + TAKES_SECONDS


@dataclasses.dataclass(frozen=True)
class AlertStorm:
    """What is broken, and where.

    Args:
        cluster: the dev cluster.
        system: gpupack's namespace.
        kube: where jobs come and go.
        judged: makes them.
        shown: the Prometheus.
        speed: of its rules.
    """

    cluster: ClusterDriver
    system: Kube
    kube: Kube
    judged: Judged
    shown: Prometheus
    speed: float

    def __call__(self, *, seconds: float, seed: int, most: int | None = None) -> "Report":
        """Break things for so long, or so many of them."""
        began, broken = time.time(), list[Broken]()
        order = self._order(random.Random(seed))
        with self._jobs():
            for each in itertools.islice(order, most):
                if time.time() + each.lasts_seconds(self.speed) > began + seconds and broken:
                    break
                broken.append(self._break(each))
                all_up(self.system)
                time.sleep(REST_SECONDS)
        ended = time.time()
        fired = firing(self.shown, began, ended)
        return Report(ended - began, broken, fired, judge(broken, fired))

    def _break(self, each: Break) -> Broken:
        began = time.time()
        with each.how():
            end = began + each.lasts_seconds(self.speed)
            while time.time() < end and not self._all_fire(each, began):
                time.sleep(1)
            ended = time.time()
        # What was broken needs a while until it is whole again.
        fades = each.fades_seconds / self.speed + TAKES_SECONDS + REST_SECONDS
        return Broken(each.name, began, ended, each.expected, each.allowed, fades)

    def _all_fire(self, each: Break, since: float) -> bool:
        fired = {alert.name for alert in firing(self.shown, since, time.time())}
        return each.expected <= fired

    def _order(self, chance: random.Random) -> Iterator[Break]:
        breaks = [
            each for each in self.breaks() if each.lasts_seconds(self.speed) <= each.max_seconds
        ]
        while True:
            yield from chance.sample(breaks, len(breaks))

    def breaks(self) -> tuple[Break, ...]:
        """All of them."""
        node = self.cluster.nodes()[0]
        return (
            Break(
                "a GPU is gone",
                lambda: self._gpu_gone(node),
                frozenset({"GpupackGpuFailed"}),
                frozenset({"GpupackGpusKeptOut", "GpupackAttemptsLost"}),
            ),
            Break(
                "a node has no agent",
                lambda: agent_down(self.system, self.cluster.nodes()[-1]),
                frozenset({"GpupackAgentMissing"}),
                frozenset({"GpupackAttemptsLost"}),
            ),
            Break(
                "no operator runs",
                lambda: self._scaled(OPERATOR),
                frozenset({"GpupackOperatorAway"}),
                # It requests everything again when it is back.
                frozenset({"GpupackAttemptsLost", "GpupackPartDown"}),
            ),
            Break(
                "no scheduler runs",
                lambda: self._scaled(SCHEDULER),
                frozenset({"GpupackSchedulerAway"}),
                frozenset(
                    {
                        "GpupackSchedulerNotDeciding",
                        "GpupackBindsFail",
                        "GpupackAttemptsLost",
                        "GpupackPartDown",
                    }
                ),
            ),
            Break(
                "the API hangs",
                self._api_hangs,
                frozenset({"GpupackPartDown"}),
                frozenset({"GpupackApiErrors", "GpupackApiSlow"}),
                max_seconds=55.0,
            ),
            Break(
                "a user creates an object that cannot be read",
                self._unreadable,
                frozenset({"GpupackObjectsUnreadable"}),
                fades_seconds=900.0,
            ),
            Break(
                "processes are killed that come back at once",
                self._blips,
                frozenset(),
                max_seconds=float("inf") if self.speed == 1 else 0.0,
            ),
        )

    @contextlib.contextmanager
    def _gpu_gone(self, node: str) -> Iterator[None]:
        before, everywhere = inventory_of(self.system)
        (gpu,) = everywhere["devices"]
        here = {"match": node, "devices": [gpu | {"count": gpu["count"] - 1}]}
        write(self.system, node, yaml.safe_dump({"nodes": [here, everywhere]}))
        try:
            yield
        finally:
            write(self.system, node, before)
            wait_for(self._none_kept_out, seconds=90, what="no GPU is kept out")

    def _none_kept_out(self) -> bool:
        nodes = self.system.gpunodes()
        return not any(each.get("spec", {}).get("quarantine") for each in nodes)

    @contextlib.contextmanager
    def _scaled(self, workload: str) -> Iterator[None]:
        kind, _, name = workload.partition("/")
        replicas = self.system.get(kind, name)["spec"]["replicas"]
        self.system.scale(kind, name, 0)
        try:
            yield
        finally:
            self.system.scale(kind, name, replicas)

    @contextlib.contextmanager
    def _api_hangs(self) -> Iterator[None]:
        (pod, *_) = pods_of_part(self.system, "api")
        with pod_paused(self.cluster, pod, "gpupack_apiserver"):
            yield

    @contextlib.contextmanager
    def _unreadable(self) -> Iterator[None]:
        worker = {"name": "worker", "image": "none", "deep": "DEEP"}
        name = f"deep-{time.time_ns()}"
        job = gpujob(name, template={"spec": {"containers": [worker]}}, suspend=True)
        text = json.dumps(job).replace('"DEEP"', '{"a":' * 300 + "1" + "}" * 300)
        path = f"/apis/gpupack.dev/v1beta1/namespaces/{self.kube.namespace}/gpujobs"
        self.kube.insist("create", "--raw", path, "-f", "-", stdin=text)
        try:
            yield
        finally:
            self.kube.insist("delete", "gpujob", name, "--wait=false")

    @contextlib.contextmanager
    def _blips(self) -> Iterator[None]:
        for pattern in PROCESSES.values():
            kill_process(self.cluster, pattern)
            time.sleep(20)
        yield

    @contextlib.contextmanager
    def _jobs(self) -> Iterator[None]:
        numbers = itertools.count()

        def submit() -> None:
            name = f"job-{next(numbers)}"
            self.kube.apply(self.judged.job(name, gpus=1, seconds=3, ttlSecondsAfterFinished=5))

        with running(submit, lambda: 3.0):
            yield


@dataclasses.dataclass(frozen=True)
class Report:
    """What came of a storm."""

    seconds: float
    broken: list[Broken]
    fired: list[Fired]
    verdict: Verdict

    def __str__(self) -> str:
        lines = [f"{self.seconds:.0f} s, {len(self.broken)} breaks, {len(self.fired)} alerts"]
        for each in self.broken:
            names = {alert.name for alert in self.fired if each.names(alert)}
            lines.append(
                f"  {each.name} ({each.ended - each.began:.0f} s): {', '.join(sorted(names))}"
            )
        return "\n".join(lines)


def firing(shown: Prometheus, begin: float, end: float) -> list[Fired]:
    """List the alerts that fired, one for each run of evaluations without a gap."""
    found: list[Fired] = []
    for series in shown.samples('ALERTS{alertstate="firing"}', begin, end):
        labels: dict[str, Any] = dict(series["metric"])
        name = labels.pop("alertname")
        for extra in ("__name__", "alertstate", "severity"):
            labels.pop(extra, None)
        text = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found += [Fired(name, text, *each) for each in _runs(series["values"], GAP_SECONDS)]
    return found


def _runs(values: list[list[Any]], gap: float) -> Iterator[tuple[float, float]]:
    moments = [float(at) for at, _ in values]
    first = last = moments[0]
    for at in moments[1:]:
        if at - last > gap:
            yield first, last
            first = at
        last = at
    yield first, last
