# SPDX-License-Identifier: Apache-2.0
"""Measures placement rates against stock kube-schedulers, and the cost of pending pods.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/scheduling_rate.py
        [--nodes 1000 5000] [--turns 3] [--job-turns 1] [--no-rest] [--write]
        [--schedulers gpupack stock-unlimited]

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
machine's other work. `first_seconds` is the time from the start of the scheduler's first process to
the first pod with a node, `requests` what the API server answered from then on.

Prints a line of JSON for each turn, and tables; --write makes the report in docs/reports and the
tables in docs/queueing/measurements.md.
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

import documents
import schedulers
from documents import replaced, row
from harness import ROOT, STATE, SYSTEM_NAMESPACE, Kube
from part_times import Meter, first_start
from parts import Ledger, ledger_reader
from schedulers import OURS, STOCK, UNLIMITED, Scheduler
from simulated_fleet import GPUS_PER_NODE, delete_all, fleet, for_all, gpujob, pod_spec
from watched_pods import Seen, watched

from gpupack_crds.kinds import GPUJOBS
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import JOBS, PODS

DOCS = ROOT / "docs"
REPORT, DOCUMENT = DOCS / "reports" / "scheduling-rate.json", DOCS / "queueing/measurements.md"
MARK, COSTS_MARK = "scheduling rate", "processor time of a pod"
NAMESPACE = "scheduling-rate"
SIZES = {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.2}
"""GPUs of a pod, and their probability."""
WORKERS = (64, 32, 16, 8, 4, 2, 1)
ROUNDS_OF_JOBS = 8
SEED = 1
WAITING, REST_SECONDS, SETTLE_SECONDS = 1000, 60.0, 20.0
TIMEOUT_SECONDS = 900.0
REQUESTS = re.compile(r"^apiserver_request_total{(.*)} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
WRITES = {"POST", "PUT", "PATCH", "APPLY"}
LEAST_OF_A_POD = 0.05
"""Requests for a pod below which they are others' and not shown."""

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
                busy = await self._placed(seen, len(gpus), scheduler)
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
                busy = await self._placed(seen, sum(workers), scheduler)
                report = rates(seen) | self._packing(seen, dict.fromkeys(seen.nodes, 1)) | busy
                del report["first_seconds"]  # The pods are created after the scheduler's start.
                kind = GPUJOBS if scheduler is OURS else JOBS
                await self._delete(seen, kind.collection(NAMESPACE))
        return report

    async def rest(self, ledger: Ledger) -> Json:
        """Measure gpupack's scheduler while all GPUs are held."""
        report: Json = {"waiting": WAITING}
        async with watched(self._api, NAMESPACE) as seen:
            with schedulers.running(OURS, self._system, self._paths):
                await self._create(OURS, "holder", [GPUS_PER_NODE] * self._nodes)
                await self._placed(seen, self._nodes, OURS)
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

    async def _placed(self, seen: Seen, count: int, scheduler: Scheduler) -> Json:
        """Wait until so many have a node; return the costs since the first."""
        await seen.until(lambda: bool(seen.bound), seconds=TIMEOUT_SECONDS)
        first, meter = min(seen.bound.values()), Meter()
        started, before = first_start(scheduler.parts), await self._requests()
        await seen.until(lambda: len(seen.bound) >= count, seconds=TIMEOUT_SECONDS)
        busy, requests = meter.spent(), await self._requests() - before
        by_pod = {
            what: round(number / count, 2)
            for what, number in requests.items()
            if number >= LEAST_OF_A_POD * count
        }
        return {"first_seconds": round(first - started, 2), "busy": busy, "requests": by_pod}

    async def _requests(self) -> Counter[str]:
        """Return the writes that the API server has answered so far, by verb and resource."""
        text = await asyncio.to_thread(self._system.insist, "get", "--raw", "/metrics")
        found = Counter[str]()
        for line in REQUESTS.finditer(text):
            labels = dict(LABEL.findall(line[1]))
            if labels["verb"] in WRITES:
                path = (labels["verb"], labels["resource"], labels["subresource"])
                found[" ".join(filter(None, path))] += int(float(line[2]))
        return found

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
    chosen = [each for each in schedulers.ALL if each.name in options.schedulers]

    def tell(what: str, scheduler: Scheduler, turn: int, found: Json) -> None:
        line = {"scheduler": scheduler.title, "turn": turn, **found}
        print(json.dumps({"nodes": nodes, "what": what, **line}), file=sys.stderr, flush=True)
        report[what].append(line)

    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:
        bench = Bench(cluster, api, nodes)
        for turn in range(options.turns):
            for scheduler in chosen:
                tell("pods", scheduler, turn, await bench.pods(scheduler, gpus))
        for turn in range(options.job_turns):
            for scheduler in [each for each in (OURS, STOCK) if each in chosen]:
                tell("jobs", scheduler, turn, await bench.jobs(scheduler, workers))
        if nodes == min(options.nodes) and options.rest:
            with ledger_reader(system) as ledger:
                report["rest"] = await bench.rest(ledger)
            print(json.dumps({"nodes": nodes, "rest": report["rest"]}), file=sys.stderr, flush=True)
    return report


def table(reports: list[Json]) -> str:
    """Return the table in Markdown: medians over turns, and of the ratios within each turn."""
    columns = ["", "nodes", "scheduler", "first after (s)", "pods/s", "against the stock default"]
    columns += ["against the unlimited client", "nodes used", "nodes wholly free"]
    lines = [row(columns), row(["---"] * len(columns))]
    for report in reports:
        for what in ("pods", "jobs"):
            for scheduler in schedulers.ALL:
                cells = _cells(report[what], scheduler)
                if cells:
                    lines.append(row((what, f"{report['nodes']:,}", scheduler.title, *cells)))
    return "\n".join(lines)


def _cells(turns: list[Json], scheduler: Scheduler) -> tuple[str, ...]:
    mine = _turns_of(turns, scheduler)
    if not mine:
        return ()
    figures = ("pods_per_second", "nodes_used", "nodes_free")
    rate, used, free = (spread([each[figure] for each in mine]) for figure in figures)
    firsts = [each["first_seconds"] for each in mine if "first_seconds" in each]
    first = f"{statistics.median(firsts):.1f}" if firsts else "-"
    ratios = [_ratio(mine, _turns_of(turns, other)) for other in (STOCK, UNLIMITED)]
    return first, rate, *ratios, used, free


def _turns_of(turns: list[Json], scheduler: Scheduler) -> list[Json]:
    return [each for each in turns if each["scheduler"] == scheduler.title]


def _ratio(mine: list[Json], others: list[Json]) -> str:
    """Return the median of the ratios within each turn."""
    ratios = [
        a["pods_per_second"] / b["pods_per_second"] for a, b in zip(mine, others, strict=False)
    ]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def costs_table(report: Json) -> str:
    """Return the table of processor time and requests for a pod, medians over turns."""
    chosen = [each for each in schedulers.ALL if _turns_of(report["pods"], each)]
    rows = []
    for what, cost in (("cores", _milliseconds), ("requests", _requests_of_a_pod)):
        costs = [[cost(turn) for turn in _turns_of(report["pods"], each)] for each in chosen]
        unit = "{}, ms" if what == "cores" else "{}, requests"
        for name in sorted({name for turns in costs for turn in turns for name in turn}):
            cells = [statistics.median(turn.get(name, 0.0) for turn in turns) for turns in costs]
            rows.append((unit.format(name), *(f"{cell:.1f}" for cell in cells)))
    return documents.table(("for a pod", *(each.title for each in chosen)), rows)


def _milliseconds(turn: Json) -> dict[str, float]:
    """Return the processor time for a pod by component; `sum` is without other work."""
    seconds, pods = turn["busy"]["seconds"], turn["pods"]
    found = {part: 1e3 * cores * seconds / pods for part, cores in turn["busy"]["cores"].items()}
    return found | {"sum": sum(found.values()) - found.get("others", 0.0)}


def _requests_of_a_pod(turn: Json) -> dict[str, float]:
    return dict(turn.get("requests", {}))


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
    every = [each.name for each in schedulers.ALL]
    parser.add_argument("--schedulers", nargs="+", choices=every, default=every)
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
    print(costs_table(reports[0]))
    if options.write:
        REPORT.write_text(json.dumps(reports, indent=1) + "\n")
        text = replaced(DOCUMENT.read_text(), MARK, table(reports))
        DOCUMENT.write_text(replaced(text, COSTS_MARK, costs_table(reports[0])))


if __name__ == "__main__":
    main()
