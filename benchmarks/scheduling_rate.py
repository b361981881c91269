# SPDX-License-Identifier: Apache-2.0
"""Measures placement rates against stock kube-schedulers, and the cost of pending pods.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/scheduling_rate.py
        [--nodes 1000 5000] [--turns 3] [--job-turns 1] [--no-rest] [--write]

On the cluster of `make cluster-up`, with so many simulated nodes (kwok) of 8 GPUs.

pods    2,000 pods of 1, 2, 4 or 8 GPUs are there before the scheduler starts, the largest first. A
        stock scheduler takes them in no order and would spread small ones over all nodes, so that
        no large one fits: for it they have priorities by size. From the first that has a node to
        the last.
jobs    GPUJobs of 1 to 64 workers of one GPU, and Jobs of the same sizes for a stock scheduler.
        Created while the scheduler runs, because kube-controller-manager creates their pods then:
        by default at most 20 a second. From the first worker that has a node to the last.
rest    pods of 8 GPUs hold all GPUs; what gpupack's scheduler costs in a minute then, and in one
        with 1,000 additional pending pods of one GPU.

In turns: gpupack's scheduler; a stock one that counts an extended resource, default profile, as it
comes, whose client sends 50 requests a second and so binds no more pods; the same without that
limit; and that one with percentageOfNodesToScore 100. Only the one that is measured runs, one
replica of it, next to the cluster's own. Times are those at which a watch of this process shows
things. `cores` are the busy cores by component, from the first pod with a node on; `others` is the
machine's other work.

Prints a line of JSON for each turn, and a table; --write makes the report in docs/reports and the
table in docs/queueing/measurements.md.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import statistics
import sys
from collections import Counter
from typing import Any

import schedulers
from documents import replaced, row
from harness import ROOT, STATE, SYSTEM_NAMESPACE, Kube
from part_times import Meter
from parts import Ledger, ledger_reader
from schedulers import OURS, STOCK, Scheduler
from simulated_fleet import GPUS_PER_NODE, delete_all, fleet, for_all, gpujob, pod_spec
from watched_pods import Seen, watched

from gpupack_crds.kinds import GPUJOBS
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import JOBS, PODS

DOCS = ROOT / "docs"
REPORT, DOCUMENT = DOCS / "reports" / "scheduling-rate.json", DOCS / "queueing/measurements.md"
MARK = "scheduling rate"
NAMESPACE = "scheduling-rate"
SIZES = {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.2}
"""GPUs of a pod, and their probability."""
WORKERS = (64, 32, 16, 8, 4, 2, 1)
ROUNDS_OF_JOBS = 8
SEED = 1
WAITING, REST_SECONDS, SETTLE_SECONDS = 1000, 60.0, 20.0
TIMEOUT_SECONDS = 900.0

Json = dict[str, Any]


def sizes(pods: int) -> list[int]:
    """Return the GPUs of each pod, the largest first; the same for all schedulers."""
    drawn = random.Random(SEED).choices(list(SIZES), list(SIZES.values()), k=pods)  # noqa: S311
    return sorted(drawn, reverse=True)


def pod(scheduler: Scheduler, name: str, gpus: int) -> Json:
    """Return a standalone pod for this scheduler."""
    spec = {"schedulerName": scheduler.name, **pod_spec(scheduler.resource, gpus)}
    if scheduler is not OURS:
        spec["priorityClassName"] = schedulers.priority_class(gpus)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(scheduler: Scheduler, name: str, workers: int) -> Json:
    """Return a Job of as many pods, each of which is placed separately."""
    spec = {
        "schedulerName": scheduler.name,
        "restartPolicy": "Never",
        **pod_spec(scheduler.resource, 1),
    }
    template = {"metadata": {}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            "template": template,
        },
    }


class Bench:
    """The cluster with its simulated nodes, without gpupack's scheduler."""

    def __init__(self, cluster: Cluster, api: Api, nodes: int) -> None:
        self._paths, self._api, self._nodes = cluster.settings.paths, api, nodes
        self._kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
        self._system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)

    async def pods(self, scheduler: Scheduler, gpus: list[int]) -> Json:
        """Place pods that exist before the scheduler starts."""
        async with watched(self._api, NAMESPACE) as seen:
            await self._create(scheduler, "pod", gpus)
            await seen.until(lambda: len(seen.present) == len(gpus), seconds=TIMEOUT_SECONDS)
            with schedulers.running(scheduler, self._system, self._paths):
                busy = await self._placed(seen, len(gpus))
            by_uid = {uid: gpus[_number(each.metadata.name)] for uid, each in seen.present.items()}
            report = rates(seen) | self._packing(seen, by_uid) | busy
            await self._delete(seen, PODS.collection(NAMESPACE))
        return report

    async def jobs(self, scheduler: Scheduler, workers: list[int]) -> Json:
        """Place the pods of jobs that are created while the scheduler runs."""
        async with watched(self._api, NAMESPACE) as seen:
            with schedulers.running(scheduler, self._system, self._paths):
                if scheduler is OURS:
                    await asyncio.to_thread(schedulers.wait_leader, self._system)
                await for_all(enumerate(workers), lambda each: self._create_job(scheduler, *each))
                busy = await self._placed(seen, sum(workers))
                report = rates(seen) | self._packing(seen, dict.fromkeys(seen.nodes, 1)) | busy
                kind = GPUJOBS if scheduler is OURS else JOBS
                await self._delete(seen, kind.collection(NAMESPACE))
        return report

    async def rest(self, ledger: Ledger) -> Json:
        """Measure gpupack's scheduler while all GPUs are held."""
        report: Json = {"waiting": WAITING}
        async with watched(self._api, NAMESPACE) as seen:
            with schedulers.running(OURS, self._system, self._paths):
                await self._create(OURS, "holder", [GPUS_PER_NODE] * self._nodes)
                await self._placed(seen, self._nodes)
                report["none_pending"] = await self._minute(ledger)
                await self._create(OURS, "waits", [1] * WAITING)
                report["they_wait"] = await self._minute(ledger)
                report["placed_at_rest"] = len(seen.bound) - self._nodes
                await self._delete(seen, PODS.collection(NAMESPACE))
        return report

    async def _minute(self, ledger: Ledger) -> Json:
        await asyncio.sleep(SETTLE_SECONDS)
        calls, meter = await asyncio.to_thread(filter_calls, ledger), Meter()
        await asyncio.sleep(REST_SECONDS)
        spent = meter.spent()
        after = await asyncio.to_thread(filter_calls, ledger)
        return {"filter_calls": after - calls, **spent}

    async def _create(self, scheduler: Scheduler, group: str, gpus: list[int]) -> None:
        async def create(each: tuple[int, int]) -> None:
            number, count = each
            manifest = pod(scheduler, f"{group}-{number:05}", count)
            await self._api.create(PODS, manifest, namespace=NAMESPACE)

        await for_all(enumerate(gpus), create)

    async def _create_job(self, scheduler: Scheduler, number: int, workers: int) -> None:
        name = f"job-{number:03}"
        if scheduler is OURS:
            await self._api.create(GPUJOBS, gpujob(name, workers, 1), namespace=NAMESPACE)
        else:
            await self._api.create(JOBS, job(scheduler, name, workers), namespace=NAMESPACE)

    async def _placed(self, seen: Seen, count: int) -> Json:
        """Wait until so many have a node; return the busy cores since the first."""
        await seen.until(lambda: bool(seen.bound), seconds=TIMEOUT_SECONDS)
        meter = Meter()
        await seen.until(lambda: len(seen.bound) >= count, seconds=TIMEOUT_SECONDS)
        return {"busy": meter.spent()}

    def _packing(self, seen: Seen, gpus: dict[str, int]) -> Json:
        used: Counter[str] = Counter()
        for uid, node in seen.nodes.items():
            used[node] += gpus[uid]
        assert max(used.values()) <= GPUS_PER_NODE, "a node has more than it has"  # noqa: S101
        return {
            "gpus": used.total(),
            "nodes_used": len(used),
            "nodes_free": self._nodes - len(used),
        }

    async def _delete(self, seen: Seen, collection: str) -> None:
        await asyncio.to_thread(delete_all, self._kube, collection)
        await seen.until(lambda: not seen.present, seconds=TIMEOUT_SECONDS)


def rates(seen: Seen) -> Json:
    """Return the rates from the first pod with a node to the last, and of both halves."""
    bound = sorted(seen.bound.values())
    created = sorted(seen.created.values())
    middle = len(bound) // 2
    return {
        "pods": len(bound),
        "seconds": round(bound[-1] - bound[0], 2),
        "pods_per_second": round((len(bound) - 1) / (bound[-1] - bound[0]), 1),
        "first_half_per_second": round(middle / (bound[middle] - bound[0]), 1),
        "created_per_second": round((len(created) - 1) / (created[-1] - created[0]), 1),
    }


def filter_calls(ledger: Ledger) -> int:
    """Return the number of filter calls so far from the extender's metrics."""
    found = re.findall(r'calls_total{outcome="\w+",verb="filter"} (\S+)', ledger.text())
    return int(sum(map(float, found)))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


async def measure(cluster: Cluster, nodes: int, options: argparse.Namespace) -> Json:
    """Run all turns with so many nodes."""
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    report: Json = {"nodes": nodes, "pods": [], "jobs": [], "rest": None}
    rounds = min(ROUNDS_OF_JOBS, nodes * GPUS_PER_NODE // sum(WORKERS))
    gpus, workers = sizes(options.pods), list(WORKERS * rounds)

    def tell(what: str, scheduler: Scheduler, turn: int, found: Json) -> None:
        line = {"scheduler": scheduler.title, "turn": turn, **found}
        print(json.dumps({"nodes": nodes, "what": what, **line}), file=sys.stderr, flush=True)
        report[what].append(line)

    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:
        bench = Bench(cluster, api, nodes)
        for turn in range(options.turns):
            for scheduler in schedulers.ALL:
                tell("pods", scheduler, turn, await bench.pods(scheduler, gpus))
        for turn in range(options.job_turns):
            for scheduler in (OURS, STOCK):
                tell("jobs", scheduler, turn, await bench.jobs(scheduler, workers))
        if nodes == min(options.nodes) and options.rest:
            with ledger_reader(system) as ledger:
                report["rest"] = await bench.rest(ledger)
            print(json.dumps({"nodes": nodes, "rest": report["rest"]}), file=sys.stderr, flush=True)
    return report


def table(reports: list[Json]) -> str:
    """Return the table in Markdown: medians over turns, and of the ratios within each turn."""
    columns = ("", "nodes", "scheduler", "pods/s", "against the stock default")
    lines = [row((*columns, "nodes used", "nodes wholly free")), row(["---"] * 7)]
    for report in reports:
        for what in ("pods", "jobs"):
            for scheduler in schedulers.ALL:
                cells = _cells(report[what], scheduler)
                if cells:
                    lines.append(row((what, f"{report['nodes']:,}", scheduler.title, *cells)))
    return "\n".join(lines)


def _cells(turns: list[Json], scheduler: Scheduler) -> tuple[str, ...]:
    mine = [each for each in turns if each["scheduler"] == scheduler.title]
    stock = [each for each in turns if each["scheduler"] == STOCK.title]
    if not mine:
        return ()
    ratios = [
        a["pods_per_second"] / b["pods_per_second"] for a, b in zip(mine, stock, strict=False)
    ]
    figures = ("pods_per_second", "nodes_used", "nodes_free")
    rate, used, free = (spread([each[figure] for each in mine]) for figure in figures)
    return rate, f"{statistics.median(ratios):.2f}" if ratios else "-", used, free


def spread(figures: list[float]) -> str:
    """Return the median, and the range if the figures differ."""
    middle = statistics.median(figures)
    text = f"{middle:,.0f}"
    return (
        text
        if min(figures) == max(figures)
        else f"{text} ({min(figures):,.0f} to {max(figures):,.0f})"
    )


def main() -> None:
    """Measure and print; restore the cluster even if it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--job-turns", type=int, default=1)
    parser.add_argument("--rest", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--write", action="store_true", help=f"write {REPORT} and {DOCUMENT}")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    reports = []
    for nodes in options.nodes:
        with (
            fleet(cluster, kube, nodes),
            schedulers.largest_first(kube, SIZES),
            schedulers.gpupack_stopped(system),
        ):
            kube.insist("create", "namespace", NAMESPACE)
            try:
                reports.append(asyncio.run(measure(cluster, nodes, options)))
            finally:
                for collection in (GPUJOBS, JOBS, PODS):
                    delete_all(kube, collection.collection(NAMESPACE))
                kube.kubectl("delete", "namespace", NAMESPACE)
    print(json.dumps(reports))
    print(table(reports))
    if options.write:
        REPORT.write_text(json.dumps(reports, indent=1) + "\n")
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARK, table(reports)))


if __name__ == "__main__":
    main()
