# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a thousand pending GPUJobs, and the API writes over their whole life.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/waiting_jobs.py [--jobs 1000]
        [--json FILE]

On the cluster of `make cluster-up`, with 25 simulated nodes (kwok) of 8 GPUs: GPUJobs hold all
GPUs, and `--jobs` more of one GPU are pending. Then

rest    for two minutes nothing happens: cores that are busy, by part, operator and extender with
        their standbys; and writes by gpupack's accounts
life    the holders go, and the jobs run and end, 200 at a time; this program ends their pods, as a
        kubelet would. All writes by gpupack's accounts, from the jobs' creation on, by job

Writes are counted from the audit log of the API server, which is restarted for that, and restored
afterwards. Renewals of Leases are left out: they depend on time. Prints one line of JSON, and fails
if the operator takes 5 % of a core, or a job more than 12 writes.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import audit_log
from audit_log import Call
from harness import STATE, Kube
from part_times import Meter
from simulated_fleet import GPUS_PER_NODE, delete_all, fleet, for_all, gpujob
from watched_pods import Seen, watched

from gpupack_crds.kinds import GPUJOBS
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound
from gpupack_kubeclient.resources import PODS

NODES = 25
NAMESPACE = "waiting-jobs"
ACCOUNTS = ("gpupack-operator", "gpupack-scheduler")
LOG = STATE / "log" / "audit.log"
SETTLE_SECONDS, REST_SECONDS = 60.0, 120.0
TIMEOUT_SECONDS = 900.0
LOOK_SECONDS = 0.5
MAX_CORES, MAX_WRITES = 0.05, 12

Json = dict[str, Any]


class Bench:
    """A cluster that is full from the beginning."""

    def __init__(self, api: Api, jobs: int) -> None:
        self._api, self._jobs = api, jobs

    async def run(self) -> Json:
        """Measure both phases."""
        async with watched(self._api, NAMESPACE) as seen:
            await self._create("holder", NODES, gpus=GPUS_PER_NODE)
            await seen.until(lambda: len(seen.bound) == NODES, seconds=TIMEOUT_SECONDS)
            began = time.time()
            await self._create("job", self._jobs, gpus=1)
            await self._until("Pending", self._jobs)
            await asyncio.sleep(SETTLE_SECONDS)
            rest = await self._rest()
            report: Json = {"jobs": self._jobs, "rest": rest}
            freed = time.time()
            for number in range(NODES):
                await self._api.delete(GPUJOBS, f"holder-{number}", namespace=NAMESPACE)
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(self._end_pods(seen))
                await self._until("Succeeded", self._jobs)
                ending.cancel()
            await asyncio.sleep(SETTLE_SECONDS / 4)
        made = [call for call in audit_log.calls(LOG) if call.at >= began]
        life = {"seconds": round(time.time() - freed, 1), **per_job(made, self._jobs)}
        return report | {"life": life}

    async def _rest(self) -> Json:
        meter, began = Meter(), time.time()
        await asyncio.sleep(REST_SECONDS)
        spent, ended = meter.spent(), time.time()
        made = [call for call in audit_log.calls(LOG) if began <= call.at <= ended]
        return {"writes": dict(counted(made)), **spent}

    async def _create(self, group: str, count: int, *, gpus: int) -> None:
        async def create(number: int) -> None:
            manifest = gpujob(f"{group}-{number}", 1, gpus)
            await self._api.create(GPUJOBS, manifest, namespace=NAMESPACE)

        await for_all(range(count), create)

    async def _until(self, phase: str, count: int) -> None:
        """Wait until so many jobs have this phase and a reason."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                _, jobs = await self._api.page(GPUJOBS, namespace=NAMESPACE)
                reported = (each for each in jobs if each.status.reason)
                if sum(each.status.phase == phase for each in reported) >= count:
                    return
                await asyncio.sleep(LOOK_SECONDS)

    async def _end_pods(self, seen: Seen) -> None:
        """End running pods, as a kubelet reports it."""
        ended: set[str] = set()
        while True:
            running = [
                (uid, pod)
                for uid, pod in seen.present.items()
                if uid not in ended and pod.status.phase == "Running"
            ]
            await for_all((pod for _, pod in running), self._end)
            ended |= {uid for uid, _ in running}
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, pod: objects.Pod) -> None:
        namespace, name = pod.key
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        over = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
        container = {
            "name": "worker",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": over},
        }
        status = {"status": {"phase": "Succeeded", "containerStatuses": [container]}}
        with contextlib.suppress(NotFound):
            await self._api.merge(PODS, name, status, namespace=namespace, subresource="status")


def counted(made: Iterable[Call]) -> Counter[str]:
    """Return the writes by account, verb and resource, without renewals of Leases."""
    return Counter(
        f"{call.account}: {call.verb} {call.what}"
        for call in made
        if call.is_write and call.what != "leases"
    )


def per_job(made: Iterable[Call], jobs: int) -> Json:
    """Return the writes per job."""
    writes = counted(made)
    return {
        "writes_per_job": round(writes.total() / jobs, 2),
        "writes_per_job_by_kind": {
            kind: round(number / jobs, 3) for kind, number in writes.most_common()
        },
    }


def is_within(report: Json) -> bool:
    """Return whether the figures are within the bounds."""
    cores = report["rest"]["cores"]["operator"]
    writes = report["life"]["writes_per_job"]
    return bool(cores < MAX_CORES and writes <= MAX_WRITES)


@contextlib.contextmanager
def namespace(kube: Kube) -> Iterator[None]:
    """Create a namespace for the jobs for as long as the context lasts."""
    kube.insist("create", "namespace", NAMESPACE)
    try:
        yield
    finally:
        for kind in (GPUJOBS, PODS):
            delete_all(kube, kind.collection(NAMESPACE))
        kube.kubectl("delete", "namespace", NAMESPACE)


async def measure(cluster: Cluster, jobs: int) -> Json:
    """Run both phases as the administrator."""
    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:
        return await Bench(api, jobs).run()


def main() -> None:
    """Measure and print; restore the cluster even if it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    with audit_log.audited(cluster, LOG, ACCOUNTS), fleet(cluster, kube, NODES), namespace(kube):
        report = asyncio.run(measure(cluster, options.jobs))
    line = json.dumps(report)
    print(line)
    if options.json:
        options.json.write_text(line + "\n")
    sys.exit(not is_within(report))


if __name__ == "__main__":
    main()
