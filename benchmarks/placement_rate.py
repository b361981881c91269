# SPDX-License-Identifier: Apache-2.0
"""Measures how fast standalone pods are placed while 200 are pending, and the API calls it costs.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/placement_rate.py

On the cluster of `make cluster-up`, with 25 simulated nodes (kwok) of 8 GPUs: pods that take whole
nodes hold all GPUs, and 200 pods of one GPU are pending. Then (all) the holders end at once, and
(drip) with 200 other pending pods ten of the placed pods end, one after the other.

Calls to the API server are counted from its audit log. For this the API server is restarted with
two more arguments, and restored afterwards. Calls of filter and bind are counted from the
extender's metrics. Prints one line of JSON.
"""

import collections
import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import audit_log
from audit_log import Call
from harness import STATE, SYSTEM_NAMESPACE, Kube, wait_for
from parts import Ledger, ledger_reader

from gpupack_crds import names
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths

NODES, GPUS_PER_NODE, DRIPS = 25, 8, 10
PODS = NODES * GPUS_PER_NODE
NAMESPACE = "placement-rate"
LOG = STATE / "log" / "audit.log"
IDLE_SECONDS = 20.0
TIMEOUT_SECONDS = 300.0
ACCOUNT = "gpupack-scheduler"
AGENTS = {"kube-scheduler": "kube-scheduler", "OpenAPI-Generator": "extender"}
"""Prefixes of user agents; both run in one pod with one account."""

Manifest = dict[str, Any]


def node_resources() -> Manifest:
    """Return the status that gives a simulated node its GPUs."""
    slots = GPUS_PER_NODE * names.SHARE_SLOTS_PER_GPU
    counts = {names.GPU: str(GPUS_PER_NODE), names.GPU_SHARE: str(slots)}
    return {"status": {"capacity": counts, "allocatable": counts}}


def gpu_node(index: int) -> Manifest:
    """Return the GPUNode that an agent would write."""
    devices = [
        {
            "uuid": f"GPU-kwok-{index}-{number}",
            "index": number,
            "model": "simulated",
            "memoryMiB": 81920,
            "simulated": True,
        }
        for number in range(GPUS_PER_NODE)
    ]
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUNode",
        "metadata": {"name": f"kwok-{index}"},
        "spec": {},
        "status": {"mode": "owned", "devices": devices, "simulated": True},
    }


def pod(name: str, gpus: int) -> Manifest:
    """Return a standalone pod for a simulated node."""
    limits = {names.GPU: str(gpus), "cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeSelector": {"type": "kwok"},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
        },
    }


class Bench:
    """Measurements of the cluster."""

    def __init__(self, kube: Kube, ledger: Ledger) -> None:
        self.kube, self.ledger = kube, ledger

    def run(self) -> Manifest:
        """Measure all phases."""
        self.create("holder", NODES, gpus=GPUS_PER_NODE)
        self.wait_placed("holder", NODES)
        phases: dict[str, Callable[[], None]] = {
            "create": lambda: self.wait_refused("first", PODS),
            "idle": lambda: time.sleep(IDLE_SECONDS),
            "all": self.free_everything,
            "create_more": lambda: self.wait_refused("second", PODS),
            "drip": self.free_one_by_one,
        }
        report = {}
        for name, act in phases.items():
            report[name] = self.phase(act)
            print(name, json.dumps(report[name]), file=sys.stderr, flush=True)
        return report

    def free_everything(self) -> None:
        """Delete all holders: 200 GPUs become free at once."""
        self.kube.insist("delete", "pod", "-l", "group=holder", "--wait=false")
        self.wait_placed("first", PODS)

    def free_one_by_one(self) -> None:
        """Delete ten placed pods, each after the one before has been replaced."""
        for number in range(DRIPS):
            self.kube.insist("delete", "pod", f"first-{number}", "--wait=false")
            self.wait_placed("second", number + 1)

    def create(self, group: str, count: int, *, gpus: int) -> None:
        """Create pods in one request each, as a ReplicaSet does."""
        pods = [pod(f"{group}-{number}", gpus) for number in range(count)]
        for each in pods:
            each["metadata"]["labels"] = {"group": group}
        listed = {"apiVersion": "v1", "kind": "List", "items": pods}
        self.kube.insist("create", "-f", "-", stdin=json.dumps(listed))

    def wait_refused(self, group: str, count: int) -> None:
        """Create pods that cannot be placed, and wait until each is refused."""
        self.create(group, count, gpus=1)
        self._wait(group, count, lambda each: bool(each["status"].get("conditions")))

    def wait_placed(self, group: str, count: int) -> None:
        """Wait until so many pods have a node."""
        self._wait(group, count, lambda each: "nodeName" in each["spec"])

    def _wait(self, group: str, count: int, is_so: Callable[[Manifest], bool]) -> None:
        def look() -> bool:
            listed = self.kube.insist("get", "pods", "-l", f"group={group}", "-o", "json")
            return sum(map(is_so, json.loads(listed)["items"])) >= count

        wait_for(look, seconds=TIMEOUT_SECONDS, what=f"{count} pods of {group}")

    def phase(self, act: Callable[[], None]) -> Manifest:
        """Run a phase and return its cost."""
        calls, began = self.extender_calls(), time.time()
        act()
        ended = time.time()
        after = self.extender_calls()
        made = [call for call in audit_log.calls(LOG) if began <= call.at <= ended]
        return summary(made, {k: after[k] - calls.get(k, 0) for k in after}, ended - began)

    def extender_calls(self) -> dict[str, float]:
        """Return the calls by verb and outcome from the extender's metrics."""
        text = self.ledger.text()
        found = re.findall(r'calls_total{outcome="(\w+)",verb="(\w+)"} (\S+)', text)
        return {f"{verb} {outcome}": float(value) for outcome, verb, value in found}


def part_of(call: Call) -> str:
    """Return the component that made a call."""
    found = (part for start, part in AGENTS.items() if call.agent.startswith(start))
    return next(found, call.agent)


def summary(made: list[Call], calls: dict[str, float], seconds: float) -> Manifest:
    """Return rates, and calls for each bound pod."""
    bound = sorted(call.at for call in made if call.what == "pods/binding")
    counts = collections.Counter(f"{part_of(call)}: {call.verb} {call.what}" for call in made)
    writes = collections.Counter(part_of(call) for call in made if call.is_write)
    pods = len(bound)
    filters = sum(number for name, number in calls.items() if name.startswith("filter"))
    report: Manifest = {
        "seconds": round(seconds, 1),
        "bound": pods,
        "extender_calls": {name: int(number) for name, number in calls.items() if number},
        "api_calls": dict(counts),
        "filter_calls_per_second": round(filters / seconds, 1),
    }
    if pods > 1:
        report |= {
            "bind_rate_per_second": round((pods - 1) / (bound[-1] - bound[0]), 1),
            "filter_calls_per_bound_pod": round(filters / pods, 2),
            "extender_writes_per_bound_pod": round(writes["extender"] / pods, 3),
            "kube_scheduler_writes_per_bound_pod": round(writes["kube-scheduler"] / pods, 3),
        }
    return report


def is_telling(report: dict[str, Manifest]) -> bool:
    """Return whether each pod cost at most one write, and filter calls were counted."""
    writes = [phase.get("extender_writes_per_bound_pod", 0) for phase in report.values()]
    return max(writes) <= 1 and any(
        phase["filter_calls_per_second"] > 0 for phase in report.values()
    )


@contextlib.contextmanager
def simulated_nodes(cluster: Cluster, kube: Kube) -> Iterator[None]:
    """Create nodes with GPUs and without a kubelet for as long as the context lasts."""
    cluster.up(nodes=len(cluster.nodes()), kwok_nodes=NODES)
    for index in range(1, NODES + 1):
        patch = json.dumps(node_resources())
        kube.insist("patch", "node", f"kwok-{index}", "--subresource=status", "-p", patch)
        manifest = gpu_node(index)
        kube.insist("create", "-f", "-", stdin=json.dumps(manifest))
        status = json.dumps({"status": manifest["status"]})
        where = ["gpunode", f"kwok-{index}", "--subresource=status", "--type=merge"]
        kube.insist("patch", *where, "-p", status)
    try:
        yield
    finally:
        kube.kubectl("delete", "gpunode", *(f"kwok-{index}" for index in range(1, NODES + 1)))
        cluster.up(nodes=len(cluster.nodes()), kwok_nodes=0)


@contextlib.contextmanager
def namespace(kube: Kube) -> Iterator[None]:
    """Create a namespace for the pods for as long as the context lasts."""
    kube.insist("create", "namespace", NAMESPACE)
    try:
        yield
    finally:
        kube.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        kube.kubectl("delete", "namespace", NAMESPACE)


def main() -> None:
    """Measure and print; restore the cluster even if it is interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    with (
        audit_log.audited(cluster, LOG, [ACCOUNT]),
        simulated_nodes(cluster, kube),
        namespace(kube),
        ledger_reader(system) as ledger,
    ):
        report = Bench(kube, ledger).run()
    print(json.dumps({"pods": PODS, "nodes": NODES} | report))
    sys.exit(not is_telling(report))


if __name__ == "__main__":
    main()
